"""What the measuring scripts share: their options, how a program is run, and the conditions around a group of runs."""

import argparse
import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import results


def run_json(command):
    """What a program prints as JSON. One that fails ends the script: a CSV holds whole groups only."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"exit {result.returncode}: {' '.join(map(str, command))}\n{result.stderr[-2000:]}")
    return json.loads(result.stdout)


def cpu_name():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def default_csv():
    name = re.sub(r"[^a-z0-9]+", "-", cpu_name().lower()).strip("-")
    return Path(__file__).parent / f"{name}.csv"


class Watch:
    """How much of the machine others took meanwhile, in cores; time that a hypervisor withheld counts as theirs."""

    def __init__(self):
        self.started = self.look()

    @staticmethod
    def look():
        user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), busy - sum(usage.ru_utime + usage.ru_stime for usage in ours)

    def others(self):
        (then, before), (now, after) = self.started, self.look()
        return max(0.0, (after - before) / (now - then))


class Group:
    """The rows of one model at one number of threads and one length."""

    def __init__(self, section, model, threads, tokens):
        self.model, self.threads, self.tokens = model, threads, tokens
        self.key = (section, model.stem, threads, tokens)
        self.rows = []
        self.say("processor", cpu_name())
        self.say("cores", os.cpu_count())
        self.say("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"))
        self.say("load before", os.getloadavg()[0])

    def say(self, what, value, program="machine"):
        """A condition: the first time counts."""
        if not results.select(self.rows, program=program, figure=what):
            self.add(program, what, 0, value)

    def add(self, program, figure, run, value, branches=0):
        self.rows.append(results.Row(*self.key, branches, program, figure, run, value))

    def ramet_bench(self, options, *words, reps=1):
        """`ramet bench` as JSON; the median of each figure when there are repetitions."""
        shape = ["-m", self.model, "--threads", self.threads, "--prompt", self.tokens, "--gen", options.gen]
        limit = ["--kernels", options.kernels] if options.kernels else []
        out = run_json([options.ramet, "bench", *shape, *limit, *words, "--reps", reps, "--json"])
        self.say("build", f"ramet {out['version']}, {out['build']}", "ramet")
        return out


def arguments(description, prompts, gen, runs):
    """A parser with what every measuring script takes. `runs` is how it calls its repetitions."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ramet", type=Path, required=True, help="the program to measure")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default 1,2)")
    parser.add_argument("--prompts", default=prompts, help=f"lengths of prompts in tokens (default {prompts})")
    parser.add_argument("--gen", type=int, default=gen, help=f"tokens to decode behind each (default {gen})")
    parser.add_argument(f"--{runs}", dest="runs", type=int, default=5, help="default 5")
    parser.add_argument("--kernels", help="ramet's option: nothing faster than avx2, say; give it a CSV of its own")
    parser.add_argument("--csv", type=Path, default=default_csv(), help="default: bench/<machine>.csv")
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.gguf")
    return parser


def integers(text):
    return [int(word) for word in text.split(",")]


def measure_all(options, section, measure):
    """Calls measure(options, group, run) for every run of every group, and keeps each group as it is done."""
    for model in options.models:
        for threads in integers(options.threads):
            for tokens in integers(options.prompts):
                group = Group(section, model, threads, tokens)
                for run in range(1, options.runs + 1):
                    watch = Watch()
                    measure(options, group, run)
                    group.add("machine", "others", run, watch.others())
                    about = f"{model.stem}, {threads} threads, {tokens} tokens: {run} of {options.runs}"
                    print(f"{about}; others took {watch.others():.2f} cores", file=sys.stderr, flush=True)
                group.say("load after", os.getloadavg()[0])
                results.add_to(options.csv, group.rows)
