"""A real Slurm with two nodes of one core each on this machine: munged, slurmctld and two slurmd, on the loopback alone.

It needs root and Debian's packages slurm-wlm and munge, and writes /etc/slurm/slurm.conf (Snakemake's plug-in has Slurm look for it
there); one that another Slurm wrote is left alone, with an error.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

CONFIGURATION = Path("/etc/slurm/slurm.conf")
CLUSTER = "parliabench-test"
SETTINGS = """
ClusterName={cluster}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=6827
SlurmUser=root
SlurmdUser=root
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
# No accounting and no cgroups, as on the plainest cluster; nothing holds a job to the memory that it asked for.
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
# A dead node is noticed within seconds, and comes back by itself.
ReturnToService=2
SlurmdTimeout=10
KillWait=5
InactiveLimit=0
SchedulerParameters=batch_sched_delay=0
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[17011-17012] CPUs=1 RealMemory=4000
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=1-0 State=UP
"""


class Slurm:
    """The running cluster: its nodes can be killed and started again."""

    def __init__(self, home: Path):
        self.home = home
        self.daemons: dict[str, subprocess.Popen] = {}

    def start(self, name: str, *command: str) -> None:
        with (self.home / f"{name}.out").open("ab") as output:
            self.daemons[name] = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def start_node(self, node: str) -> None:
        self.start(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str, job: str) -> None:
        """Let a node die: its daemon and every process of the job that runs on it, by a signal that nobody can catch."""
        self.daemons[node].kill()
        self.daemons[node].wait()
        steps = [p for p in psutil.process_iter(["cmdline"]) if f"slurmstepd: [{job}." in " ".join(p.info["cmdline"] or ())]
        for process in [child for step in steps for child in step.children(recursive=True)] + steps:
            if process.is_running():
                process.kill()

    def jobs(self) -> list[tuple[str, str, str]]:
        """(id, node, rule with its wildcards) of every running job."""
        lines = ask("squeue", "-h", "-t", "R", "-o", "%i|%N|%k").splitlines()
        return [tuple(line.split("|", 2)) for line in lines]

    def wait_idle(self) -> None:
        for _ in range(150):
            if ask("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2":
                return
            time.sleep(0.2)
        raise TimeoutError(f"the two nodes did not come up: see {self.home}/*.log")


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@contextmanager
def two_nodes(home: Path) -> Iterator[Slurm]:
    """The cluster, its state and logs under `home`; ended, and its configuration removed, on leaving."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmd", "munged"))):
        raise RuntimeError("needs root, and the Debian packages slurm-wlm and munge: apt-get install slurm-wlm munge")
    if CONFIGURATION.exists() and CLUSTER not in CONFIGURATION.read_text(encoding="utf-8"):
        raise RuntimeError(f"{CONFIGURATION} belongs to another Slurm: run this on a machine without one")
    for folder in ("state", "spool-n1", "spool-n2"):
        (home / folder).mkdir(parents=True)
    CONFIGURATION.parent.mkdir(exist_ok=True)
    CONFIGURATION.write_text(SETTINGS.format(cluster=CLUSTER, home=home), encoding="utf-8")
    slurm = Slurm(home)
    try:
        Path("/run/munge").mkdir(mode=0o755, exist_ok=True)
        shutil.chown("/run/munge", "munge", "munge")
        if not ask("munge", "-n"):
            slurm.start("munged", "setpriv", "--reuid", "munge", "--regid", "munge", "--init-groups", "munged", "--foreground")
            time.sleep(1)
        slurm.start("slurmctld", "slurmctld", "-D")
        slurm.start_node("n1")
        slurm.start_node("n2")
        slurm.wait_idle()
        yield slurm
    finally:
        subprocess.run(["scancel", "-u", "root"], check=False, capture_output=True)
        for daemon in reversed(slurm.daemons.values()):
            daemon.terminate()
            daemon.wait(timeout=30)
        CONFIGURATION.unlink()
