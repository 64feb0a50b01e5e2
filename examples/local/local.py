"""A parameter server and its workers on this machine, one in each terminal.

    python local.py 3 0     the parameter server
    python local.py 3 1     the first worker
    python local.py 3 2     the second worker

Or all of them with one command:

    rallypoint run --ps 1 --workers 2 -- python local.py

The three find each other by themselves, whichever is started first: no port and no host is written anywhere.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, at the import

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where digits_member is


def main() -> None:
    parser = argparse.ArgumentParser(description="train with a parameter server on this machine")
    parser.add_argument("members", type=int, nargs="?", help="how many terminals there are")
    parser.add_argument("index", type=int, nargs="?", help="which one this is; 0 is the parameter server")
    parser.add_argument("--steps", type=int, default=600, help="of all workers together")
    parser.add_argument("--target", type=float, default=0.9, help="accuracy below which it fails")
    options = parser.parse_args()

    by_hand = options.index is not None
    if by_hand and (options.members < 2 or not 0 <= options.index < options.members):
        parser.error(f"there is no member {options.index} of {options.members}; it takes 2 members or more")
    if not by_hand and "RALLYPOINT_RANK" not in os.environ:
        parser.error("give MEMBERS and INDEX, or start it with `rallypoint run`")

    # Not above: TensorFlow takes seconds, and a slip of the pen should be told at once.
    import digits_member
    from rallypoint.tensorflow import ClusterResolver, LocalClusterResolver

    if by_hand:
        jobs = {"ps": 1, "worker": options.members - 1}
        resolver = LocalClusterResolver(jobs, rank=options.index)  # waits until all have come
    else:
        resolver = ClusterResolver()  # what `rallypoint run` has agreed on
    server = resolver.start_server()
    role, index = resolver.get_task_info()
    digits_member.take_part(server, resolver.cluster_spec(), role, index, options.steps, options.target)


if __name__ == "__main__":
    main()
