"""What a test does with MultiWorkerMirroredStrategy: every worker adds its own number, and all must see the sum."""

# After `resolver` was made; gives `number`.
SUM = """
import os, time
import tensorflow as tf

options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING)
strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, communication_options=options)

@tf.function
def total(number):
    def add(own):
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(own))
    return strategy.run(add, args=(number,))

number = float(total(tf.constant(resolver.task_id + 1.0)))
try:
    total(tf.constant(0.0))  # whoever comes through this one knows that the other has its number
except tf.errors.OpError:
    pass  # the other has come through, and left
"""
