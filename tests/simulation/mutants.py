"""Whether the simulation sees anything: the real code with one thing wrong in it, which a seed must notice.

    make mutants                    all of them
    make mutants MUTANTS="goodbye"  those whose name has this in it

Each is a change to a copy of the tree, never to the tree itself. Standard library only.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = "crates/core/src/"
SEEDS = os.environ.get("SEEDS", "400")

# Its name, the file, what stands there once, and what stands there instead.
MUTANTS = [
    (
        "a missing goodbye",
        "supervise/others.rs",
        "        remote.send(ToMember::Goodbye { code: whole.verdict.code(), farewell: whole.farewell() });\n",
        "        _ = remote;\n",
    ),
    (
        "a goodbye with another code",
        "supervise/others.rs",
        "Goodbye { code: whole.verdict.code(),",
        "Goodbye { code: whole.verdict.code() / 2,",
    ),
    ("a late SIGKILL", "supervise/stop.rs", "        let end = now + grace;", "        let end = now + grace * 2;"),
    (
        "an early SIGKILL",
        "supervise/stop.rs",
        "        let end = now + grace;",
        "        let end = now + grace / 2;",
    ),
    (
        "asked twice",
        "process/tree.rs",
        "        if !self.groups.contains(&process.group) && self.others.insert(process.pid) {",
        "        if self.others.insert(process.pid) {",
    ),
    (
        "a seat beside its own",
        "rendezvous/seats.rs",
        "        self.taken[rank as usize] = Some(offer);",
        "        let seat = (rank as usize + 1) % self.taken.len();\n        self.taken[seat] = Some(offer);",
    ),
    (
        "a welcome to another rank",
        "rendezvous/gather.rs",
        "        remote.send(ToMember::Welcome { rank, leader: self.seats.own() });",
        "        let told = rank.saturating_sub(1);\n"
        "        remote.send(ToMember::Welcome { rank: told, leader: self.seats.own() });",
    ),
    (
        "a roster before all have come",
        "rendezvous/seats.rs",
        "            _ if self.free.is_empty() => Verdict::AllHaveCome,",
        "            _ if self.free.len() <= 1 => Verdict::AllHaveCome,",
    ),
    (
        "no exclusive create",
        "rendezvous/directory.rs",
        "        let linked = self.folder.link(&prepared, file);",
        "        _ = self.folder.remove(file);\n        let linked = self.folder.link(&prepared, file);",
    ),
    (
        "nothing is taken back",
        "rendezvous/directory.rs",
        "self.take_back(|last| last.id == ours)",
        "self.take_back(|last| last.id.is_empty() && last.id == ours)",
    ),
    (
        "a takeover file stays",
        "rendezvous/directory.rs",
        '            self.folder.remove(&takeover_file(contact)).or_log("there is no takeover file, or it stays");',
        "            _ = takeover_file(contact);",
    ),
    (
        "no signs of life",
        "rendezvous/join.rs",
        "                    Err(_) => ToLeader::Alive,",
        "                    Err(_) => continue,",
    ),
    (
        "the failure is another's",
        "job.rs",
        "                actions = self.stop(Verdict::Failed(Failure { rank, pid, ended }));",
        "                let rank = (rank + 1) % self.roles.len() as u32;\n"
        "                actions = self.stop(Verdict::Failed(Failure { rank, pid, ended }));",
    ),
    (
        "a failure of its own is told as success",
        "job.rs",
        "            if !success && (asks ||",
        "            if !success && rank != 0 && (asks ||",
    ),
    (
        "one restart too many",
        "job.rs",
        "self.members[at].restarts < allowed {",
        "self.members[at].restarts <= allowed && allowed > 0 {",
    ),
    (
        "a lost leader stops nobody",
        "supervise/following.rs",
        "                vec![lost, Action::HangUp, Action::Stop(self.grace)]",
        "                vec![lost, Action::HangUp]",
    ),
    (
        "a signal is not told to the leader",
        "supervise/following.rs",
        "            Action::Tell(ToLeader::Interrupted { signal: number }),\n",
        "",
    ),
    (
        "a lost member is not missed",
        "supervise/leading.rs",
        '                    self.apply(Event::Lost { rank, why: format!("its agent is gone{on_purpose}: {why}") });',
        "                    _ = (rank, why, on_purpose);",
    ),
    (
        "nobody gives up on the silent",
        "supervise/conductor.rs",
        "                    others.give_up = Some(clock::now() + self.grace + LAST_REPORT);",
        "                    others.give_up = None;",
    ),
    (
        "an echo is a second signal",
        "supervise/signals.rs",
        "            if heard.way != way && !heard.echoed",
        "            if false && heard.way != way && !heard.echoed",
    ),
    (
        "the time of a stop counts",
        "clock.rs",
        "const STOPPED: Duration = Duration::from_secs(5);",
        "const STOPPED: Duration = Duration::from_secs(5000);",
    ),
    (
        "orphans are not ended",
        "supervise/executor.rs",
        "        let left = tree::end_all(LEFT_BEHIND, stuck, &mut self.asked);",
        "        let left = 0;\n        _ = (stuck, LEFT_BEHIND);",
    ),
]


def copy_of_the_tree(folder: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def play(tree: Path, target: str) -> "subprocess.CompletedProcess[str]":
    command = ["cargo", "test", "--quiet", "-p", "rallypoint", "--locked", "--features", "simulation"]
    environ = os.environ | {
        "RUSTFLAGS": "--cfg tokio_unstable",
        "CARGO_TARGET_DIR": target,
        "SEEDS": SEEDS,
        "ONE": "1",
        "RUST_BACKTRACE": "0",
    }
    return subprocess.run([*command, "--test", "simulation"], cwd=tree, env=environ, capture_output=True, text=True)


def main() -> int:
    # Apart from the tree's own: cargo takes a copy of a tree for the tree.
    wanted, target = os.environ.get("MUTANTS", ""), os.environ.get("MUTANTS_TARGET", str(ROOT / "target/mutants"))
    overlooked = []
    with tempfile.TemporaryDirectory(prefix="rallypoint-mutants-") as folder:
        tree = Path(folder)
        copy_of_the_tree(tree)
        played = play(tree, target)
        if played.returncode != 0:
            print(f"without a mutant something is noticed already:\n{played.stdout}{played.stderr}")
            return 1
        for name, file, before, after in [mutant for mutant in MUTANTS if wanted in mutant[0]]:
            path = tree / CORE / file
            text = path.read_text()
            if text.count(before) != 1:
                print(f"OUTDATED   {name}: {file} has it {text.count(before)} times", flush=True)
                overlooked.append(name)
                continue
            path.write_text(text.replace(before, after))
            played = play(tree, target)
            path.write_text(text)
            output = played.stdout + played.stderr
            invariants = sorted(set(re.findall(r"^  ([a-z-]+): ", output, re.MULTILINE)))
            if "error: could not compile" in output:
                print(f"NO MUTANT  {name}: it does not compile\n{output}", flush=True)
                overlooked.append(name)
            elif played.returncode == 0 or not invariants:
                print(f"OVERLOOKED {name}", flush=True)
                overlooked.append(name)
            else:
                print(f"noticed    {name}: {', '.join(invariants)}", flush=True)
    print(f"{len(overlooked)} overlooked")
    return 1 if overlooked else 0


if __name__ == "__main__":
    sys.exit(main())
