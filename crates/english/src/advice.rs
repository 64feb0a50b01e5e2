//! What is known about a failure by the words that it ended with.
//!
//! Some errors of frameworks tell what went wrong inside them and nothing about what to do. Where the last lines of the
//! first failure have such words, the closing lines add the advice.

use rallypoint::hint;
use rallypoint::hint::{Hint, Setting};

/// All of these words in the last lines of stderr, and what helps.
struct Known {
    words: &'static [&'static str],
    advice: fn() -> Hint,
}

const KERAS_3: &str = "`fit` of Keras 3 (TensorFlow 2.16 and later) works with neither MultiWorkerMirroredStrategy nor \
    ParameterServerStrategy; install tf_keras in TensorFlow's own version (`pip install tf_keras==2.21.0` for \
    2.21.0) and set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported, or write the training loop yourself; see examples/keras_fit";

const KNOWN: [Known; 6] = [
    // `ValueError: Attempt to convert a value (PerReplica:{...}) with an unsupported type
    // (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.`
    Known { words: &["with an unsupported type", "PerReplica"], advice: || hint!(KERAS_3) },
    // `ValueError: To use this dataset, you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset.`,
    // below a traceback through keras/src. Without Keras it means what it says.
    Known {
        words: &["ClusterCoordinator.create_per_worker_dataset", "keras/src"],
        advice: || hint!(KERAS_3),
    },
    Known {
        words: &["There must be at least one ps"],
        advice: || {
            let (chief, ps) = (Setting::Chief, Setting::Ps.with("1"));
            hint!("ParameterServerStrategy needs parameter servers and a chief: ", chief, " ", ps)
        },
    },
    Known {
        words: &["Could not start gRPC server"],
        advice: || {
            hint!(
                "the port of this member is taken, or the program has started a second server in one process; with \
                rallypoint run, let it listen at the port of TF_CONFIG, and once only"
            )
        },
    },
    // `InternalError: ... Unable to parse request`, `... while calling /tensorflow.eager.EagerService/RunComponentFunction`
    Known {
        words: &["Unable to parse request", "EagerService/RunComponentFunction"],
        advice: || {
            hint!(
                "a fault of TensorFlow's own under ParameterServerStrategy with two or more workers, seen in 2.21: one thread \
                of the chief moves a table while another reads it; it is rare and depends on timing, so run the job \
                again from its last checkpoint"
            )
        },
    },
    Known {
        words: &["No module named 'tensorflow'"],
        advice: || {
            hint!(
                "this Python has no TensorFlow; give the one that has by its path (-- venv/bin/python train.py), and on \
                other hosts the same path must exist"
            )
        },
    },
];

/// What helps, if these last lines are known.
pub(crate) fn for_last_lines(lines: &[String]) -> Option<Hint> {
    let has = |word: &&str| lines.iter().any(|line| line.contains(*word));
    KNOWN.iter().find(|known| known.words.iter().all(has)).map(|known| (known.advice)())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(text: &str) -> Option<String> {
        for_last_lines(&text.lines().map(str::to_owned).collect::<Vec<_>>()).map(|hint| hint.typed())
    }

    /// As TensorFlow 2.21 with Keras 3.15 wrote them.
    #[test]
    fn fit_of_keras_3_under_both_strategies() {
        let mirrored = "\
    return ops.EagerTensor(value, ctx.device_name, dtype)
ValueError: Attempt to convert a value (PerReplica:{
  0: <tf.Tensor: shape=(4, 8), dtype=float32, numpy=
array([[0., 0., 0., 0., 0., 0., 0., 0.],
       [0., 0., 0., 0., 0., 0., 0., 0.]], dtype=float32)>
}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.";
        assert_eq!(advice(mirrored), Some(KERAS_3.to_owned()));
        let parameter_servers = "\
  File \"venv/lib/python3.11/site-packages/keras/src/utils/traceback_utils.py\", line 122, in error_handler
    raise e.with_traceback(filtered_tb) from None
  File \"venv/lib/python3.11/site-packages/tensorflow/python/distribute/input_lib.py\", line 984, in __iter__
    raise ValueError(\"To use this dataset, you need to pass this dataset to \"
ValueError: To use this dataset, you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset.";
        assert_eq!(advice(parameter_servers), Some(KERAS_3.to_owned()));
        let own_loop = parameter_servers.lines().skip(2).collect::<Vec<_>>().join("\n");
        assert_eq!(advice(&own_loop), None, "not by Keras: it means what it says");
    }

    #[test]
    fn words_that_are_known_and_words_that_are_not() {
        for (words, says) in [
            ("ValueError: There must be at least one ps.", "--chief --ps 1"),
            ("tensorflow.python.framework.errors_impl.UnknownError: Could not start gRPC server", "port"),
            ("ModuleNotFoundError: No module named 'tensorflow'", "venv/bin/python"),
            (
                "(0) INTERNAL: Unable to parse request\nAdditional GRPC error information from remote target \
                 /job:ps/replica:0/task:0/device:CPU:0 while calling /tensorflow.eager.EagerService/RunComponentFunction:",
                "from its last checkpoint",
            ),
        ] {
            assert!(advice(words).is_some_and(|advice| advice.contains(says)), "{words}");
        }
        for words in [
            "",
            "ValueError: bad",
            "No module named 'tensorflow_datasets'",
            "PerReplica: 3",
            "Unable to parse request",
        ] {
            assert_eq!(advice(words), None, "{words}");
        }
    }
}
