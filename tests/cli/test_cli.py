"""The command as people and scripts meet it: every command, its JSON, its exit codes, its standard streams.

usage: test_cli.py RAMET [TestClass.test_name ...]      RAMET is the program to test
Standard library only. Every test runs in an empty directory with an empty home and must leave its files alone.
"""

import array
import ast
import hashlib
import json
import math
import os
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "share", "models", "tiny-llama-kjv-q8_0.gguf")
RAMET = None
TEXT = "And the LORD said unto Moses, Speak unto the children of Israel"
VARIABLES = ("RAMET_MODELS", "XDG_DATA_HOME", "XDG_CACHE_HOME", "OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE",
             "RAMET_CONTEXT_KEY")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def read_text(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def read_npy(data):
    """Shape and the floats of a float32 .npy file."""
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:16]
    (length,) = struct.unpack("<H", data[8:10])
    head = ast.literal_eval(data[10 : 10 + length].decode())
    assert head["descr"] == "<f4" and head["fortran_order"] is False and (10 + length) % 64 == 0
    values = array.array("f", data[10 + length :])
    assert len(values) == head["shape"][0] * head["shape"][1]
    return head["shape"], values


class Case(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="ramet-cli-")
        self.work, self.home, self.tmp = (os.path.join(self.top, d) for d in ("work", "home", "tmp"))
        for directory in (self.work, self.home, self.tmp):
            os.mkdir(directory)
        self.environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
        self.environment.update(HOME=self.home, TMPDIR=self.tmp)

    def tearDown(self):
        left = os.listdir(self.tmp)
        partial = [f for f in os.listdir(self.work) if f.startswith(".") or "tmp" in f]
        shutil.rmtree(self.top)
        self.assertEqual(left, [], "temporary files were left behind")
        self.assertEqual(partial, [], "half-written files were left behind")

    def path(self, name):
        return os.path.join(self.work, name)

    def ramet(self, *words, code=0, stdin=b"", text=True):
        """Runs the program; its standard output. Its standard error is kept in self.err."""
        done = subprocess.run([RAMET, *words], input=stdin, capture_output=True, cwd=self.work, env=self.environment,
                              timeout=240)
        self.err = done.stderr.decode()
        self.assertEqual(done.returncode, code, f"ramet {' '.join(words)}\n{done.stdout[-2000:]!r}\n{self.err[-2000:]}")
        return done.stdout.decode() if text else done.stdout

    def fails(self, code, pattern, *words, stdin=b""):
        """The same for a failure: nothing but one line on standard error, which matches."""
        self.ramet(*words, code=code, stdin=stdin)
        lines = [line for line in self.err.splitlines() if line.startswith("ramet: ")]
        self.assertEqual(len(lines), 1, self.err)
        self.assertRegex(lines[0], pattern)

    def json(self, *words, stdin=b""):
        out = self.ramet(*words, "--json", stdin=stdin)
        self.assertTrue(out.endswith("\n"))
        return json.loads(out)

    def build(self, name, text=TEXT, *more):
        self.ramet("ctx", "build", "-q", "-m", MODEL, "-o", name, "-p", text, *more)
        return self.path(name)

    def other_model(self):
        """The same model but for one weight: another digest."""
        data = bytearray(read(MODEL))
        data[-1] ^= 1
        path = self.path("other.gguf")
        write(path, data)
        return path


class Usage(Case):
    def test_help_at_every_level(self):
        commands = ["run", "ctx build", "ctx fork", "ctx info", "ctx tree", "ctx diff", "ctx convert", "bench", "verify",
                    "tokenize", "detokenize", "logits", "perplexity", "models"]
        for words in (["--help"], ["-h"], ["help"], ["-help"]):
            out = self.ramet(*words)
            self.assertEqual(re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", out, re.M), commands)
            self.assertEqual(self.err, "")
            codes = [re.search(r"Exit codes: [^.]*", t).group().split() for t in (out, read_text("README.md"))]
            self.assertEqual(codes[0], codes[1])
        self.assertEqual(len(re.findall(r"^  ctx ", self.ramet("ctx", "--help"), re.M)), 6)
        for command in commands:
            out = self.ramet(*command.split(), "--help")
            self.assertTrue(out.startswith(f"usage: ramet {command}"), out)
            self.assertEqual(out, self.ramet("help", *command.split()))

    def test_version(self):
        out = self.ramet("--version")
        self.assertRegex(out, r"(?s)^ramet \d+\.\d+\.\d+\nbuild +\S.*\nnumerics +[0-9a-f]{32}\nkernels +\S+\n$")

    def test_mistakes(self):
        self.fails(2, "no command")
        self.fails(2, "ctx what", "ctx")
        self.fails(2, "unknown command 'serve'", "serve")
        self.fails(2, "did you mean 'bench'", "bnech")
        self.fails(2, "did you mean 'ctx build'", "ctx", "biuld")
        self.fails(2, "did you mean --branches", "run", "-m", MODEL, "-p", "x", "--branhces", "2")
        self.fails(2, "did you mean --restore-at", "logits", "-restore-ta", "2")
        self.fails(2, "--temp .*'hot'", "run", "-m", MODEL, "-p", "x", "--temp", "hot")
        self.fails(2, "needs a value", "run", "-m")
        self.fails(2, "-m MODEL", "run", "-p", "x")
        self.fails(2, "-p TEXT", "run", "-m", MODEL)
        self.fails(2, "unexpected argument 'hello'", "run", "-m", MODEL, "hello")
        self.fails(2, "not both", "run", "-m", MODEL, "-p", "x", "-f", "y")
        self.fails(2, "both want standard output", "ctx", "build", "-m", MODEL, "-p", "x", "-o", "-", "--json")
        self.fails(2, "which file", "ctx", "info")
        for words in (["--min-generation", "1"], ["--profile", "enterprise", "--context-key", "k"]):
            self.fails(2, f"{words[0]} is checked with --verify", "ctx", "info", "a.ramet", *words)

    def test_missing_files(self):
        self.fails(1, "no-such.gguf", "run", "-m", "./no-such.gguf", "-p", "x")
        self.fails(1, "no-such.txt", "run", "-m", MODEL, "-f", "no-such.txt")
        self.fails(1, "no-such.ramet", "run", "-m", MODEL, "-i", "no-such.ramet")
        self.fails(1, "no-such.ramet", "ctx", "info", "no-such.ramet")

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_full_output_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([RAMET, "models"], stdout=full, stderr=subprocess.PIPE, env=self.environment)
        self.assertEqual(done.returncode, 6, done.stderr)

    def test_output_that_cannot_be_a_file(self):
        os.mkdir(self.path("directory"))
        os.mkfifo(self.path("pipe"))
        os.symlink("pipe", self.path("link"))
        write(self.path("t"), b"1 2 3")
        for words in (["ctx", "build", "-m", MODEL, "-p", TEXT], ["logits", "-m", MODEL, "--tokens", "t"]):
            for name in ("directory", "pipe", "link"):  # a device is replaced no more than a pipe
                self.fails(2, f"{name} is not a regular file", *words, "-o", name)
            for name in ("", "new/"):
                self.fails(2, "names no file", *words, "-o", name)
            self.fails(1, "nowhere", *words, "-o", "nowhere/x")
            self.assertEqual(self.err.count("\n"), 1, "the work was done before the failure")
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))
        self.assertEqual(sorted(os.listdir(self.work)), ["directory", "link", "pipe", "t"])

    def test_file_size_limit(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        write(self.path("t"), b"1 2 3 4 5 6 7 8")
        for words in (["ctx", "build", "-p", TEXT * 9, "-o", "x.ramet"], ["logits", "--tokens", "t", "-o", "x.npy"]):
            done = subprocess.run([RAMET, *words, "-q", "-m", MODEL], cwd=self.work, env=self.environment,
                                  capture_output=True, preexec_fn=limit)
            self.assertEqual((done.returncode, done.stderr.count(b"\n")), (6, 1), done.stderr)
        self.assertEqual(os.listdir(self.work), ["t"])

    def test_names_cannot_drive_the_terminal(self):
        name = "a\x1b[31m\n\u009bm.ramet"
        shutil.copy(self.build("a.ramet"), self.path(name))
        os.makedirs(os.path.join(self.home, ".local/share/ramet/models"))
        write(os.path.join(self.home, ".local/share/ramet/models", "m\x1b[31m.gguf"), b"GGUF")
        for words in (["ctx", "tree", name], ["ctx", "tree", "."], ["ctx", "info", name], ["models"]):
            out = self.ramet(*words)
            self.assertNotRegex(out, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
            self.assertIn("?[31m", out)
        self.assertEqual(self.json("ctx", "tree", name)["trees"][0]["children"][0]["files"], [name])


class Documents(unittest.TestCase):
    def test_what_went_wrong_names_what_there_is(self):
        """A guard that was renamed guards nothing that a reader can find."""
        sources = []
        for top in ("include", "src", "tests"):
            for folder, _, names in os.walk(os.path.join(ROOT, top)):
                sources += [os.path.join(folder, n) for n in names if n.endswith((".c", ".h", ".py"))]
        words = set(re.findall(r"\w+", " ".join(read(path).decode() for path in sources)))
        words |= {os.path.splitext(os.path.basename(path))[0] for path in sources}
        names = re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`", read_text("docs/WRONG.md"))
        self.assertGreater(len(names), 20)
        self.assertEqual([name for name in names if name.removeprefix("teeth_") not in words], [])


class Models(Case):
    def put(self, *parts, data=b"GGUF"):
        path = os.path.join(self.home, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, data)
        return path

    def put_ollama(self, *parts, blob="ab" * 32, root=".ollama/models"):
        manifest = {"layers": [{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:00"},
                               {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + blob}]}
        self.put(root, "manifests", *parts, data=json.dumps(manifest).encode())
        return self.put(root, "blobs", "sha256-" + blob)

    def listed(self):
        return {(m["store"], m["name"]): m for m in self.json("models")["models"]}

    def found(self, name):
        """The file that a name stands for: the fakes are no models, so the error names it."""
        self.ramet("run", "-m", name, "-p", "x", code=5)
        return self.err.splitlines()[0].removeprefix("model ")

    def test_stores(self):
        own = self.put(".local/share/ramet/models/Small-Q4_1.gguf")
        blob = self.put_ollama("registry.ollama.ai", "library", "qwen2.5", "0.5b")
        latest = self.put_ollama("registry.ollama.ai", "library", "llama", "latest", blob="cd" * 32)
        user = self.put_ollama("registry.ollama.ai", "someone", "mine", "v1", blob="ef" * 32)
        hub = ".cache/huggingface/hub/models--org--repo"
        q4 = self.put(hub, "snapshots/abc/repo-Q4_K_M.gguf")
        q8 = self.put(hub, "snapshots/abc/deep/repo-Q8_0.gguf")
        self.put(hub, "snapshots/abc/mmproj-repo-f16.gguf")
        self.put(hub, "refs/main", data=b"abc")
        studio = self.put(".lmstudio/models/publisher/name/name-f16.gguf")
        older = self.put(".cache/lm-studio/models/publisher/old/old.gguf")
        self.put(".ollama/models/manifests/registry.ollama.ai/library/broken/latest", data=b"{")
        names = self.listed()
        expected = {("ramet", "Small-Q4_1"), ("ollama", "qwen2.5:0.5b"), ("ollama", "llama:latest"),
                    ("ollama", "someone/mine:v1"), ("huggingface", "org/repo:Q4_K_M"), ("huggingface", "org/repo:Q8_0"),
                    ("lmstudio", "publisher/name/name-f16"), ("lmstudio", "publisher/old/old"),
                    ("bundled", "tiny-llama-kjv-q8_0")}
        self.assertLessEqual(expected, set(names))
        self.assertEqual({n for n in names if n[0] != "bundled"}, {n for n in expected if n[0] != "bundled"})
        for name, path in (("small-q4_1.GGUF", own), ("SMALL", own), ("qwen2.5:0.5b", blob), ("qwen2.5", blob),
                           ("llama", latest), ("someone/mine", user), ("org/repo:q4_k_m", q4), ("org/repo:Q8_0", q8),
                           ("repo-q8_0", q8), ("publisher/name", studio), ("old.gguf", older)):
            self.assertEqual(self.found(name), path, name)
        self.fails(2, "org/repo:Q4_K_M, org/repo:Q8_0", "run", "-m", "org/repo", "-p", "x")
        table = self.ramet("models")
        self.assertIn("someone/mine:v1", table)

    def test_environment(self):
        self.put("own/a.gguf")
        self.put("data/ramet/models/b.gguf")
        self.put("hf/hub/models--gpt/snapshots/x/c.gguf")
        self.put_ollama("hf.co", "org", "d", "latest", root="oll")
        for variable, directory, store, name in (
                ("XDG_DATA_HOME", "data", "ramet", "b"), ("RAMET_MODELS", "own", "ramet", "a"),
                ("HF_HOME", "hf", "huggingface", "gpt:c"), ("OLLAMA_MODELS", "oll", "ollama", "hf.co/org/d:latest")):
            self.environment[variable] = os.path.join(self.home, directory)
            self.assertIn((store, name), self.listed())

    def test_split_files_are_one(self):
        for part in (1, 2, 3):
            self.put(f".local/share/ramet/models/big-0000{part}-of-00003.gguf", data=b"GGUF" * part)
        models = [m for m in self.json("models")["models"] if m["store"] == "ramet"]
        self.assertEqual([m["bytes"] for m in models], [24])

    def test_not_found(self):
        self.fails(1, r"no model 'nothing-like-it'.*~/\.local/share/ramet/models \(missing\).*~/\.ollama", "run", "-m",
                   "nothing-like-it", "-p", "x")
        self.fails(1, "did you mean tiny-llama-kjv-q8_0", "run", "-m", "tiny-lama-kjv-q8_0", "-p", "x")

    def test_no_home(self):
        del self.environment["HOME"]
        self.assertIn("tiny-llama-kjv-q8_0", self.ramet("models"))


class Run(Case):
    def test_text_and_streams(self):
        by_p = self.ramet("run", "-m", "tiny-llama", "-p", TEXT, "-n", "12", "--temp", "0")
        self.assertIn(f"model {MODEL}", self.err)
        self.assertRegex(self.err, r"prefilled \d+ tokens in ")
        write(self.path("p.txt"), TEXT.encode())
        common = ["run", "-q", "-m", MODEL, "-n", "12", "--temp", "0"]
        for words, stdin in ((["-f", "p.txt"], b""), (["-p", "-"], TEXT.encode()), (["-f", "-"], TEXT.encode())):
            self.assertEqual(self.ramet(*common, *words, stdin=stdin), by_p)
            self.assertEqual(self.err, "")

    def test_json(self):
        r = self.json("run", "-m", MODEL, "-p", TEXT, "-n", "6", "--temp", "0")
        text = self.ramet("run", "-m", MODEL, "-p", TEXT, "-n", "6", "--temp", "0")
        self.assertEqual(r["text"] + "\n", text)
        self.assertEqual(len(r["tokens"]), 6)
        self.assertEqual(r["prompt_tokens"], r["prefilled_tokens"])
        self.assertEqual((r["reused_tokens"], r["tier"], r["stop_reason"]), (0, "none", "length"))
        self.assertGreater(r["time_to_first_token_nanoseconds"], 0)
        self.assertEqual(r["decode_tokens"], 5)
        self.assertEqual(len(r["branches"]), 1)
        ids = json.loads(self.ramet("tokenize", "-q", "-m", MODEL, "-p", TEXT))
        self.assertEqual(len(ids) + 1, r["prompt_tokens"])  # BOS

    def test_branches(self):
        common = ["run", "-m", MODEL, "-p", TEXT, "-n", "8", "-s", "7"]
        r = self.json(*common, "--branches", "4")
        self.assertEqual(len(r["branches"]), 4)
        self.assertGreater(len({b["text"] for b in r["branches"]}), 1)
        best = max(r["branches"], key=lambda b: b["log_probability"])
        self.assertEqual(r["branches"][r["best"]], best)
        self.assertEqual(r["text"], best["text"])
        alone = self.json(*common)  # branch 0 is what one sample would be, its neighbours change nothing
        self.assertEqual(alone["branches"][0], r["branches"][0])
        again = self.json(*common, "--branches", "4", "--threads", "1", "--page-tokens", "16", "--kernels", "c")
        self.assertEqual(again["branches"], r["branches"])
        other = self.json("run", "-m", MODEL, "-p", TEXT, "-n", "8", "-s", "8", "--branches", "4")
        self.assertNotEqual(other["branches"], r["branches"])
        out = self.ramet(*common, "--branches", "4")
        self.assertEqual(len(re.findall(r"^branch \d: log-probability -[\d.]+, 8 tokens$", out, re.M)), 4)

    def test_continue_a_snapshot(self):
        cold = self.json("run", "-m", MODEL, "-p", TEXT, "-n", "9", "-s", "3")
        file = self.build("a.ramet")
        for words, stdin in (([MODEL, "-i", file], b""), (["tiny-llama", "-i", "-"], read(file))):
            r = self.json("run", "-n", "9", "-s", "3", "-m", *words, stdin=stdin)
            self.assertEqual(r["tokens"], cold["tokens"])
            self.assertEqual(r["log_probability"], cold["log_probability"])
            self.assertEqual((r["tier"], r["prefilled_tokens"]), ("snapshot", 0))
            self.assertEqual(r["reused_tokens"], cold["prompt_tokens"])
        self.assertEqual(self.json("run", "-n", "9", "-s", "3", "-i", file)["tokens"], cold["tokens"])  # model by digest
        longer = self.json("run", "-m", MODEL, "-i", file, "-p", ", saying", "-n", "5", "--temp", "0")
        whole = self.json("run", "-m", MODEL, "-p", TEXT + ", saying", "-n", "5", "--temp", "0")
        self.assertEqual(longer["text"], whole["text"])
        self.assertEqual(longer["prompt_tokens"], whole["prompt_tokens"])
        self.assertEqual(longer["reused_tokens"], cold["prompt_tokens"])
        self.fails(2, "both want standard input", "run", "-m", MODEL, "-i", "-", "-p", "-")

    def test_cache_precision_comes_from_the_snapshot(self):
        file = self.build("q.ramet", TEXT, "--kv", "f16")
        self.assertEqual(self.json("run", "-m", MODEL, "-i", file, "-n", "3")["kv"], "f16")
        self.assertEqual(self.json("ctx", "info", file)["kv"], "f16")

    def test_end_of_text(self):
        words = ["run", "-m", MODEL, "-p", "<|im_start|>", "--special", "-n", "80", "-s", "5"]
        r = self.json(*words)
        ignoring = self.json(*words, "--ignore-eos")
        self.assertEqual(len(ignoring["tokens"]), 80)
        self.assertEqual(ignoring["tokens"][: len(r["tokens"])], r["tokens"])
        self.assertIn(r["stop_reason"], ("end", "length"))

    def test_window(self):
        n = self.json("run", "-m", MODEL, "-p", TEXT, "-n", "1")["prompt_tokens"]
        r = self.json("run", "-m", MODEL, "-p", TEXT, "-n", "50", "-c", str(n + 4), "--ignore-eos")
        self.assertEqual((r["stop_reason"], len(r["tokens"])), ("window", 5))
        self.fails(1, str(n - 1), "run", "-m", MODEL, "-p", TEXT, "-n", "50", "-c", str(n - 1))
        self.assertEqual(self.json("run", "-m", MODEL, "-p", TEXT, "-n", "0")["tokens"], [])

    def test_budget(self):
        self.fails(6, "budget", "run", "-m", MODEL, "-p", TEXT, "--ctx-mem-budget", "1K")

    def test_interrupt(self):
        process = subprocess.Popen([RAMET, "run", "-m", MODEL, "-p", TEXT, "-n", "2000", "--ignore-eos"], cwd=self.work,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment)
        first = process.stdout.read(1)  # it is generating
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertTrue((first + out).endswith(b"\n"))
        self.assertIn(b"ramet: interrupted", err)

    def test_a_signal_leaves_no_scratch_file(self):
        file = self.build("a.ramet")
        words = [RAMET, "run", "-m", MODEL, "-i", "-", "-n", "2000", "--ignore-eos"]
        for number in (signal.SIGPIPE, signal.SIGHUP):
            with open(file, "rb") as data:
                process = subprocess.Popen(words, stdin=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           env=self.environment)
            process.stdout.read(1)  # it is generating
            if number == signal.SIGPIPE:
                process.stdout.close()  # as `| head -c 1` does
            else:
                process.send_signal(number)
                process.stdout.read()
            self.assertEqual(process.wait(60), 141 if number == signal.SIGPIPE else 130)
            process.stdout.close()
            process.stderr.close()
            self.assertEqual(os.listdir(self.tmp), [])


class Contexts(Case):
    def test_build(self):
        out = self.ramet("ctx", "build", "-m", MODEL, "-o", "a.ramet", "-p", TEXT)
        self.assertEqual(out, "")
        self.assertRegex(self.err, r"prefilled \d+ tokens in [\d.]+ (ms|µs|s)\nsaved a\.ramet \([\d.]+ KiB\) in ")
        r = self.json("ctx", "build", "-m", MODEL, "-o", "b.ramet", "-f", "-", stdin=TEXT.encode())
        self.assertEqual(r["bytes"], os.path.getsize(self.path("b.ramet")))
        a, b = (read(self.path(f)) for f in ("a.ramet", "b.ramet"))
        self.assertEqual(a, b)
        piped = self.ramet("ctx", "build", "-q", "-m", MODEL, "-o", "-", "-p", TEXT, text=False)
        self.assertEqual(piped, a)
        self.assertEqual(sorted(os.listdir(self.work)), ["a.ramet", "b.ramet"])

    def test_failed_build_keeps_the_old_file(self):
        file = self.build("a.ramet")
        before = read(file)
        self.fails(6, "budget", "ctx", "build", "-m", MODEL, "-o", "a.ramet", "-p", TEXT, "--ctx-mem-budget", "1K")
        self.assertEqual(read(file), before)
        self.fails(1, "nowhere", "ctx", "build", "-m", MODEL, "-o", "nowhere/a.ramet", "-p", TEXT)

    def test_fork(self):
        file = self.build("a.ramet")
        r = self.json("ctx", "fork", "-i", file, "-n", "8")
        self.assertEqual((r["branches"], r["pages_allocated"]), (8, 0))
        self.assertEqual(r["pages_a_copy_would_need"], 8)
        self.assertEqual(r["bytes_of_copies"], 9 * r["page_bytes"])
        self.assertLess(r["bytes_held"], r["bytes_of_copies"])
        self.assertEqual(self.json("ctx", "fork", "-i", file, "-n", "3", "--page-tokens", "16", "-m", MODEL)
                         ["pages_a_copy_would_need"], 3 * math.ceil(r["tokens"] / 16))
        out = self.ramet("ctx", "fork", "-i", "-", "-m", MODEL, stdin=read(file))
        self.assertIn("pages allocated      0\n", out)

    def test_info(self):
        file = self.build("a.ramet")
        info = self.json("ctx", "info", file, "--verify")
        self.assertEqual(info["weights_sha256"], hashlib.sha256(read(MODEL)).hexdigest())
        self.assertEqual(info["file_bytes"], os.path.getsize(file))
        self.assertEqual((info["kv"], info["payload"], info["has_logits"], info["verified"]), ("f32", "f32", True, True))
        self.assertIn(info["weights_sha256"], self.ramet("ctx", "info", "a.ramet"))
        self.assertEqual(self.json("ctx", "info", "-", stdin=read(file))["tokens"], info["tokens"])

    def test_tree(self):
        a, b, c = (self.build(f, t) for f, t in (("a.ramet", "In the beginning God"), ("b.ramet", "In the beginning was"),
                                                 ("c.ramet", "In the beginning")))
        tree = self.json("ctx", "tree", a, b, c)["trees"]
        self.assertEqual(len(tree), 1)
        (root,) = tree[0]["children"]
        self.assertEqual(root["files"], [c])
        self.assertEqual({f for child in root["children"] for f in child["files"]}, {a, b})
        lengths = {f: self.json("ctx", "info", f)["tokens"] for f in (a, b, c)}
        self.assertEqual(root["length"], lengths[c])
        self.assertEqual(tree[0]["tokens"], sum(lengths.values()))
        self.assertEqual(tree[0]["tokens_when_shared"], lengths[a] + lengths[b] - lengths[c])
        drawn = self.ramet("ctx", "tree", ".", "-m", MODEL)
        for piece in ("3 contexts", "a.ramet", "b.ramet", 'In the beginning"', '" God"', "└─"):
            self.assertIn(piece, drawn)
        self.ramet("ctx", "build", "-m", self.other_model(), "-o", "d.ramet", "-p", "In the beginning")
        self.assertEqual(len(self.json("ctx", "tree", ".")["trees"]), 2)
        write(self.path("e.ramet"), b"not one")
        out = self.ramet("ctx", "tree", ".", code=5)
        self.assertIn("a.ramet", out)
        self.assertIn("left out", self.err)
        os.mkdir(self.path("empty"))
        self.fails(1, "empty", "ctx", "tree", "empty")

    def test_another_model(self):
        file, other = self.build("a.ramet"), self.other_model()
        digests = [hashlib.sha256(read(m)).hexdigest() for m in (MODEL, other)]
        for words in (["run"], ["ctx", "fork"]):
            self.fails(4, f"{digests[0]}.*{digests[1]}|{digests[1]}.*{digests[0]}", *words, "-m", other, "-i", file)

    def test_corrupt(self):
        data = read(self.build("a.ramet"))
        for position in (3, len(data) // 2, len(data) - 1):
            broken = bytearray(data)
            broken[position] ^= 4
            write(self.path("x.ramet"), broken)
            self.fails(5, "x.ramet", "run", "-m", MODEL, "-i", "x.ramet")
            self.fails(5, "x.ramet", "ctx", "info", "x.ramet", "--verify")
        write(self.path("x.ramet"), data[:-10])
        self.fails(5, "x.ramet", "ctx", "fork", "-m", MODEL, "-i", "x.ramet")
        for words in (["fork", "-m", MODEL, "-i", "-"], ["info", "--verify", "-"], ["diff", "a.ramet", "-"],
                      ["convert", "-i", "-", "-o", "y.ramet"]):
            self.fails(5, "^ramet: [^/]*standard input[^/]*$", "ctx", *words, stdin=data[:-10])


class Encrypted(Case):
    def key(self, name, data=bytes(range(32)), mode=0o600):
        write(self.path(name), data)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def setUp(self):
        super().setUp()
        self.k = ("--context-key", self.key("key"))
        self.file = self.build("a.ramet", TEXT, *self.k)

    def test_each_command_with_its_key(self):
        plain = self.build("plain.ramet")
        self.assertEqual(os.path.getsize(self.file), os.path.getsize(plain))
        self.assertIn(b"tiny", read(self.file)[:1024].lower())  # the header is there to read
        run = ("run", "-n", "5", "--temp", "0", "-m", MODEL)
        self.assertEqual(self.json(*run, "-i", self.file, *self.k)["tokens"], self.json(*run, "-i", plain)["tokens"])
        self.assertEqual(self.json(*run, "-i", "-", *self.k, stdin=read(self.file))["reused_tokens"],
                         self.json("ctx", "info", plain)["tokens"])
        self.assertEqual(self.json("ctx", "fork", "-m", MODEL, "-i", self.file, *self.k)["pages_allocated"], 0)
        self.assertTrue(self.json("ctx", "info", self.file, "--verify", *self.k)["verified"])
        (tree,) = self.json("ctx", "tree", self.file, plain, *self.k)["trees"]
        self.assertEqual(tree["tokens"], 2 * tree["tokens_when_shared"])
        write(self.path("ids"), b"1 2 3 4 5 6")
        logits = ("logits", "-q", "-m", MODEL, "--tokens", "ids", "-o", "-")
        self.assertEqual(self.ramet(*logits, "--restore-at", "3", *self.k, text=False), self.ramet(*logits, text=False))
        bench = json.loads(self.ramet(*Measuring.SMALL, *self.k, "-o", "json"))
        self.assertTrue(bench["encrypted"])
        self.assertTrue(self.json("ctx", "build", "-m", MODEL, "-o", "b.ramet", "-p", TEXT, *self.k)["encrypted"])
        self.assertNotEqual(read(self.file), read(self.path("b.ramet")))
        self.assertFalse(self.json("ctx", "build", "-m", MODEL, "-o", "b.ramet", "-p", TEXT)["encrypted"])

    def test_info_without_a_key(self):
        info = self.json("ctx", "info", self.file)
        self.assertEqual((info["encrypted"], info["generation"], info["format_version"]), (True, 0, 2))
        out = self.ramet("ctx", "info", self.file)
        self.assertRegex(out, r"(?m)^encrypted +yes$")
        self.assertRegex(out, r"(?m)^generation +0$")

    def test_no_key_and_another(self):
        other = ("--context-key", self.key("other", bytes(31) + b"x"))
        for words in (["run", "-m", MODEL, "-i", self.file], ["ctx", "fork", "-m", MODEL, "-i", self.file],
                      ["ctx", "info", "--verify", self.file], ["ctx", "tree", self.file]):
            self.fails(5, "a.ramet.*key is needed", *words)
            self.fails(5, "a.ramet.*another key", *words, *other)
        broken = bytearray(read(self.file))
        broken[len(broken) // 2] ^= 1
        write(self.path("x.ramet"), broken)
        self.fails(5, "x.ramet.*seal", "run", "-m", MODEL, "-i", "x.ramet", *self.k)
        self.fails(5, "x.ramet.*seal", "ctx", "info", "--verify", "x.ramet", *self.k)
        self.ramet("ctx", "tree", ".", code=5)  # the others are drawn
        self.assertRegex(self.err, "left out: .*a.ramet.*key is needed")

    def test_key_files(self):
        verify = ("ctx", "info", "--verify", self.file, "--context-key")
        for mode in (0o640, 0o604, 0o660, 0o606, 0o610):
            self.fails(2, "chmod 600.*loose", *verify, self.key("loose", mode=mode))
        for size in (0, 31, 33):
            self.fails(2, f"32 random bytes.* {size}.*wrong", *verify, self.key("wrong", bytes(size)))
        self.fails(1, "missing", *verify, "missing")
        self.fails(2, "work", *verify, self.work)
        self.ramet(*verify, self.key("tight", mode=0o400))

    def test_environment(self):
        self.environment["RAMET_CONTEXT_KEY"] = self.k[1]
        self.ramet("ctx", "info", "--verify", self.file)
        self.build("b.ramet")
        self.assertTrue(self.json("ctx", "info", "b.ramet")["encrypted"])
        self.fails(5, "another key", "ctx", "info", "--verify", self.file, "--context-key", self.key("other", bytes(32)))
        self.environment["RAMET_CONTEXT_KEY"] = self.path("missing")
        self.fails(1, "RAMET_CONTEXT_KEY: .*missing", "ctx", "info", "--verify", self.file)
        self.ramet("tokenize", "-m", MODEL, "-p", TEXT)  # has no use for it
        self.ramet("ctx", "info", self.file)
        del self.environment["RAMET_CONTEXT_KEY"]
        plain = self.build("plain.ramet")
        self.environment["RAMET_CONTEXT_KEY"] = self.path("missing")
        self.ramet("ctx", "diff", plain, plain)
        self.ramet("ctx", "info", "--verify", plain)
        self.environment["RAMET_CONTEXT_KEY"] = ""
        self.fails(5, "key is needed", "ctx", "info", "--verify", self.file)

    def test_legacy_is_for_readers(self):
        self.ramet("ctx", "info", "--verify", self.file, "--allow-legacy-snapshots", *self.k)
        self.fails(2, "unknown option --allow-legacy", "ctx", "build", "-m", MODEL, "-o", "b.ramet", "-p", TEXT,
                   "--allow-legacy-snapshots")


class Converting(Case):
    def convert(self, *words, **more):
        return self.ramet("ctx", "convert", *words, **more)

    def test_payloads(self):
        file = self.build("a.ramet")
        before = self.json("ctx", "info", file)
        run = ("run", "-m", MODEL, "-n", "5", "--temp", "0")
        size = os.path.getsize(file)
        for payload in ("f16", "vq8", "q8"):
            name = f"{payload}.ramet"
            self.assertEqual(self.convert("-i", file, "-o", name, "--payload", payload), "")
            self.assertRegex(self.err, rf"read .*a\.ramet \([\d.]+ KiB, f32 rows\)\nsaved {payload}\.ramet "
                                       rf"\([\d.]+ KiB, {payload} rows of f32, lossy\) in ")
            info = self.json("ctx", "info", name, "--verify")
            self.assertEqual((info["kv"], info["payload"], info["lossy"]), ("f32", payload, True))
            self.assertLess(info["file_bytes"], size)
            size = info["file_bytes"]
            for key in set(before) - {"file", "payload", "lossy", "file_bytes", "payload_bytes", "verified"}:
                self.assertEqual(info[key], before[key], key)
            self.assertRegex(self.ramet("ctx", "info", name), rf"(?m)^kv, stored as   f32, {payload} \(lossy\)$")
            for words in ([], ["--kv", "f32"]):
                self.fails(1, f"{payload} rows.*--allow-lossy-payload", *run, "-i", name, *words)
                self.fails(1, f"{payload} rows.*--allow-lossy-payload", "ctx", "fork", "-m", MODEL, "-i", name, *words)
            self.fails(4, "start with --kv f32", *run, "-i", name, "--kv", payload)
            for words in ([], ["--kv", payload]):
                self.assertEqual(len(self.json(*run, "-i", name, "--allow-lossy-payload", *words)["tokens"]), 5)
            other = "q8" if payload != "q8" else "f16"
            self.fails(4, "start with --kv f32", *run, "-i", name, "--allow-lossy-payload", "--kv", other)
            self.assertEqual(self.json("ctx", "fork", "-m", MODEL, "-i", name, "--allow-lossy-payload")["branches"], 8)
        self.assertFalse(before["lossy"])
        self.assertEqual(read(self.build("again.ramet")), read(file))

    def test_json_and_streams(self):
        file = self.build("a.ramet")
        r = self.json("ctx", "convert", "-i", file, "-o", "b.ramet", "--payload", "q8")
        info = self.json("ctx", "info", "b.ramet")
        self.assertEqual((r["tokens"], r["kv"]), (info["tokens"], "f32"))
        self.assertEqual((r["before"]["file"], r["before"]["payload"], r["before"]["lossy"]), (file, "f32", False))
        self.assertEqual(r["before"]["file_bytes"], os.path.getsize(file))
        self.assertEqual((r["after"]["file"], r["after"]["payload"], r["after"]["lossy"]), ("b.ramet", "q8", True))
        for key in ("file_bytes", "payload_bytes", "encrypted", "format_version"):
            self.assertEqual(r["after"][key], info[key])
        piped = self.convert("-q", "-i", "-", "-o", "-", "--payload", "q8", stdin=read(file), text=False)
        self.assertEqual(self.err, "")
        self.assertEqual(piped, read(self.path("b.ramet")))
        for threads in ("1", "3"):
            self.convert("-i", file, "-o", "c.ramet", "--payload", "q8", "-t", threads)
            self.assertEqual(piped, read(self.path("c.ramet")))
        self.convert("-i", file, "-o", "c.ramet")  # as it is
        self.assertEqual(read(file), read(self.path("c.ramet")))
        self.convert("-i", "c.ramet", "-o", "c.ramet", "--payload", "q8")  # over itself
        self.assertEqual(piped, read(self.path("c.ramet")))

    def test_mistakes(self):
        file = self.build("a.ramet")
        self.convert("-i", file, "-o", "q8.ramet", "--payload", "q8")
        left = sorted(os.listdir(self.work))
        self.fails(2, "-i FILE", "ctx", "convert", "-o", "b.ramet")
        self.fails(2, "-o FILE", "ctx", "convert", "-i", file)
        self.fails(2, "--payload takes f32.f16.vq8.q8", "ctx", "convert", "-i", file, "-o", "b.ramet", "--payload", "q4")
        self.fails(2, "would say no more", "ctx", "convert", "-i", "q8.ramet", "-o", "b.ramet", "--payload", "f16")
        self.fails(2, "both want standard output", "ctx", "convert", "-i", file, "-o", "-", "--json")
        self.fails(1, "nowhere", "ctx", "convert", "-i", file, "-o", "nowhere/b.ramet")
        self.fails(1, "missing", "ctx", "convert", "-i", "missing", "-o", "b.ramet")
        data = bytearray(read(file))
        data[len(data) // 2] ^= 1
        write(self.path("q8.ramet"), data)
        self.fails(5, "q8.ramet.*checksum", "ctx", "convert", "-i", "q8.ramet", "-o", "q8.ramet", "--payload", "q8")
        self.assertEqual(read(self.path("q8.ramet")), bytes(data))
        self.assertEqual(sorted(os.listdir(self.work)), left)

    def test_keys(self):
        keys = {}
        for name, first in (("key", 1), ("other", 2)):
            write(self.path(name), bytes(range(first, first + 32)))
            os.chmod(self.path(name), 0o600)
            keys[name] = self.path(name)
        plain = self.build("plain.ramet")
        read_with = lambda name: ("--context-key", keys[name])
        self.convert("-i", plain, "-o", "a.ramet", "--encrypt", keys["key"])
        self.assertRegex(self.err, r"saved a\.ramet \([\d.]+ KiB, f32 rows, encrypted\)")
        self.ramet("ctx", "info", "--verify", "a.ramet", *read_with("key"))
        self.fails(5, "key is needed", "ctx", "convert", "-i", "a.ramet", "-o", "b.ramet", "--encrypt", keys["other"])
        self.convert("-i", "a.ramet", "-o", "b.ramet", *read_with("key"), "--encrypt", keys["other"], "--payload", "vq8")
        self.ramet("ctx", "info", "--verify", "b.ramet", *read_with("other"))
        self.fails(5, "another key", "ctx", "info", "--verify", "b.ramet", *read_with("key"))
        # a plain file of an encrypted one is asked for
        self.environment["RAMET_CONTEXT_KEY"] = keys["key"]
        self.fails(2, "a.ramet is encrypted.*--encrypt KEYFILE, or --decrypt", "ctx", "convert", "-i", "a.ramet", "-o",
                   "c.ramet", "--payload", "q8")
        self.assertFalse(os.path.exists(self.path("c.ramet")))
        self.fails(2, "not both", "ctx", "convert", "-i", "a.ramet", "-o", "c.ramet", "--decrypt", "--encrypt", keys["key"])
        self.convert("-i", "a.ramet", "-o", "c.ramet", "--decrypt")
        self.assertEqual(read(self.path("c.ramet")), read(plain))
        self.fails(2, "chmod 600.*plain.ramet", "ctx", "convert", "-i", plain, "-o", "d.ramet", "--encrypt", plain)


class Comparing(Case):
    def test_where_they_part(self):
        a, b = self.build("a.ramet", "In the beginning God"), self.build("b.ramet", "In the beginning was\nthe")
        ids = {f: json.loads(self.ramet("tokenize", "-m", MODEL, "-p", t))
               for f, t in ((a, "In the beginning God"), (b, "In the beginning was\nthe"), ("", "In the beginning"))}
        n = len(ids[""]) + 1  # BOS
        r = self.json("ctx", "diff", a, b)
        self.assertEqual((r["common_tokens"], r["same_state"], r["differences"]), (n, True, []))
        for side, file in (("a", a), ("b", b)):
            self.assertEqual((r[side]["file"], r[side]["tokens"]), (file, len(ids[file]) + 1))
            self.assertEqual(r[side]["goes_on"], ids[file][n - 1:])
            self.assertNotIn("text", r[side])
        r = self.json("ctx", "diff", a, b, "-m", MODEL)
        self.assertEqual((r["a"]["text"], r["b"]["text"]), (" God", " was\nthe"))
        out = self.ramet("ctx", "diff", a, b)
        self.assertIn(f"common          {n} tokens, at the end [{' '.join(map(str, ids[''][-6:]))}]\n", out)
        self.assertRegex(out, rf"(?m)^a goes on +1 tokens: \[{ids[a][-1]}\]$")
        self.assertRegex(out, r"(?m)^common state +the same bits$")
        out = self.ramet("ctx", "diff", a, b, "-m", MODEL)
        for line in ('a goes on       1 tokens: " God"', 'n the beginning"\n', '" was\\nthe"\n'):
            self.assertIn(line, out)

    def test_one_begins_the_other(self):
        a, b = self.build("a.ramet", "In the beginning"), self.build("b.ramet", "In the beginning God")
        for files, rest in (((a, b), [0, 1]), ((b, a), [1, 0]), ((a, a), [0, 0])):
            r = self.json("ctx", "diff", *files)
            self.assertEqual([len(r[side]["goes_on"]) for side in "ab"], rest)
            self.assertEqual(r["common_tokens"], min(r["a"]["tokens"], r["b"]["tokens"]))
        self.assertRegex(self.ramet("ctx", "diff", a, "-", stdin=read(b)), r"(?m)^a goes on +0 tokens$")
        self.assertEqual(self.json("ctx", "diff", "-", a, stdin=read(a))["a"]["file"], "-")

    def test_what_else_differs(self):
        a, b = self.build("a.ramet"), self.build("b.ramet", TEXT, "--kv", "f16")
        self.ramet("ctx", "convert", "-i", a, "-o", "c.ramet", "--payload", "q8")
        self.ramet("ctx", "build", "-m", self.other_model(), "-o", "d.ramet", "-p", TEXT)
        fields = lambda x, y: {d["field"]: (d["a"], d["b"]) for d in self.json("ctx", "diff", x, y)["differences"]}
        self.assertEqual(fields(a, b), {"kv": ("f32", "f16"), "payload": ("f32", "f16")})
        self.assertEqual(fields(a, "c.ramet"), {"payload": ("f32", "q8")})
        self.assertEqual(list(fields(a, "d.ramet")), ["weights_sha256"])
        for files, same in (((a, b), False), ((a, "d.ramet"), False), ((a, "c.ramet"), None), (("c.ramet", a), None),
                            (("c.ramet", "c.ramet"), None)):  # rounded rows may have gone on from rounded ones
            r = self.json("ctx", "diff", *files)
            self.assertEqual((r["same_state"], r["a"]["goes_on"]), (same, []))
        self.assertRegex(self.ramet("ctx", "diff", "c.ramet", "c.ramet"), r"(?m)^common state +lossy: not known$")
        out = self.ramet("ctx", "diff", a, b)
        self.assertRegex(out, r"(?m)^common state +other bits: see below$")
        self.assertRegex(out, r"(?m)^kv +f32 \| f16$")

    def test_mistakes(self):
        a = self.build("a.ramet")
        self.fails(2, "which files", "ctx", "diff", a)
        self.fails(2, "unexpected argument 'x'", "ctx", "diff", a, a, "x")
        self.fails(2, "both contexts want standard input", "ctx", "diff", "-", "-")
        self.fails(1, "missing", "ctx", "diff", a, "missing")
        write(self.path("x.ramet"), read(a)[:-1])
        self.fails(5, "x.ramet", "ctx", "diff", a, "x.ramet")
        other = os.path.join(ROOT, "tests", "data", "reference", "tiny", "llama-gqa", "llama-gqa-f32.gguf")
        self.fails(4, "another vocabulary", "ctx", "diff", a, a, "-m", other)


class Spilled(Case):
    """More branches than memory has room for: the same text, and nothing left on the disk."""

    def setUp(self):
        super().setUp()
        self.spill = os.path.join(self.top, "spill")
        os.mkdir(self.spill)
        # 16 positions of the bundled model are 64 KiB; each branch ends with four such pages of its own, less one shared
        self.run_branches = ("run", "-m", MODEL, "-p", TEXT, "-n", "24", "--branches", "6", "--page-tokens", "16",
                             "--ignore-eos", "--json", "-q")

    def test_the_same_text(self):
        plain = json.loads(self.ramet(*self.run_branches))
        self.assertNotIn("spill", plain)
        r = json.loads(self.ramet(*self.run_branches, "--ctx-spill-dir", self.spill))
        self.assertEqual(r["branches"], plain["branches"])
        self.assertEqual(r["spill"]["blocks_spilled"], 0)  # there is room
        self.assertGreater(r["spill"]["budget_bytes"], r["spill"]["memory_bytes"])
        self.assertEqual(os.listdir(self.spill), [])

    def test_branches_that_do_not_fit_together(self):
        plain = json.loads(self.ramet(*self.run_branches))
        for budget in ("400K", "768K"):
            self.fails(6, "memory budget.*--ctx-spill-dir", *self.run_branches, "--ctx-mem-budget", budget)
            r = json.loads(self.ramet(*self.run_branches, "--ctx-mem-budget", budget, "--ctx-spill-dir", self.spill))
            self.assertEqual(r["branches"], plain["branches"])
            self.assertGreater(r["spill"]["blocks_spilled"], 0)
            self.assertEqual(os.listdir(self.spill), [])

    def test_verify_within_a_small_budget(self):
        out = self.ramet("verify", "-m", MODEL, "--ctx-mem-budget", "2MiB", "--ctx-spill-dir", self.spill)
        self.assertRegex(out, r"(?m)^spill reads back +pass +difference 0\.00e\+00")
        self.assertNotIn("FAIL", out)
        self.assertEqual(os.listdir(self.spill), [])

    def test_contexts_over_the_budget(self):
        self.ramet("ctx", "build", "-m", MODEL, "-o", "a.ramet", "-p", TEXT * 8)
        self.fails(6, "budget", "ctx", "fork", "-i", "a.ramet", "-m", MODEL, "--ctx-mem-budget", "256K",
                   "--ctx-spill-dir", self.spill)  # one context does not fit, whatever is spilled
        self.assertEqual(os.listdir(self.spill), [])

    def test_a_directory_that_cannot_be_used(self):
        self.fails(1, "cannot create a temporary directory in .*missing", *self.run_branches, "--ctx-spill-dir",
                   os.path.join(self.top, "missing"))
        self.fails(1, "cannot create a temporary directory in .*a-file", *self.run_branches, "--ctx-spill-dir",
                   self.a_file())

    def a_file(self):
        path = os.path.join(self.top, "a-file")
        write(path, b"")
        return path

    def test_a_signal_leaves_nothing(self):
        words = [RAMET, "run", "-m", MODEL, "-p", TEXT, "-n", "100000", "-c", "110000", "--ignore-eos",
                 "--ctx-spill-dir", self.spill]
        child = subprocess.Popen(words, cwd=self.work, env=self.environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
        child.stdout.read(1)  # it is decoding
        self.assertEqual(len(os.listdir(self.spill)), 1)
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGTERM)  # not patiently
        child.stdout.close()
        child.wait()
        self.assertEqual(os.listdir(self.spill), [])

    def test_bench(self):
        r = json.loads(self.ramet("bench", "-m", MODEL, "--prompt", "64", "--gen", "2", "--reps", "1", "-o", "json",
                                  "--ctx-spill-dir", self.spill, "-q"))
        rows = {row["name"]: row for row in r["rows"]}
        for name in ("spill", "read_back"):
            self.assertGreater(rows[name]["bytes"], 64 * r["kv_bytes_per_token"])  # and the logits
            self.assertGreater(rows[name]["share_of_limit"], 0)
        self.assertEqual(rows["spill"]["bytes"], rows["read_back"]["bytes"])
        self.assertEqual(os.listdir(self.spill), [])


class Text(Case):
    def test_round_trip(self):
        text = "In the beginning \u2014 caf\u00e9 \U0001F600\n\t  tail "
        ids = self.ramet("tokenize", "-m", MODEL, "-p", text)
        self.assertEqual(ids, self.ramet("tokenize", "-m", MODEL, "-f", "-", "--json", stdin=text.encode()))
        self.assertTrue(all(isinstance(i, int) for i in json.loads(ids)))
        self.assertEqual(self.ramet("detokenize", "-m", MODEL, "-f", "-", stdin=ids.encode()), text)
        plain = ids.strip("[]\n").replace(",", " ")
        self.assertEqual(self.json("detokenize", "-m", MODEL, "-p", plain), {"text": text})

    def test_any_bytes(self):
        data = bytes(range(256)) + b"\xff\xfe\xc0\x80"
        ids = self.ramet("tokenize", "-m", MODEL, "-f", "-", stdin=data)
        self.assertEqual(self.ramet("detokenize", "-m", MODEL, "-f", "-", stdin=ids.encode(), text=False), data)

    def test_special(self):
        as_text = json.loads(self.ramet("tokenize", "-m", MODEL, "-p", "<|im_start|>"))
        as_token = json.loads(self.ramet("tokenize", "-m", MODEL, "-p", "<|im_start|>", "--special"))
        self.assertGreater(len(as_text), 1)
        self.assertEqual(len(as_token), 1)
        ids = str(as_token[0])
        self.assertEqual(self.ramet("detokenize", "-m", MODEL, "-p", ids), "")
        self.assertEqual(self.ramet("detokenize", "-m", MODEL, "-p", ids, "--special"), "<|im_start|>")

    def test_mistakes(self):
        self.assertEqual(self.ramet("tokenize", "-m", MODEL, "-p", ""), "[]\n")
        self.fails(2, "no token id at byte 2", "detokenize", "-m", MODEL, "-p", "1 x")
        self.ramet("detokenize", "-m", MODEL, "-p", "99999", code=2)


class Numbers(Case):
    def setUp(self):
        super().setUp()
        write(self.path("t"), " ".join(str((i * 37) % 1000) for i in range(70)).encode())

    def logits(self, *words):
        self.ramet("logits", "-q", "-m", MODEL, "--tokens", "t", "-o", "x.npy", *words)
        return read(self.path("x.npy"))

    def test_rows(self):
        shape, all_rows = read_npy(self.logits())
        self.assertEqual(shape, (70, 1024))
        row = lambda a, b: all_rows[a * 1024 : b * 1024]
        for words, expected in ((["last"], (69, 70)), (["3:9"], (3, 9)), ([":2"], (0, 2)), (["68:"], (68, 70))):
            shape, rows = read_npy(self.logits("--rows", *words))
            self.assertEqual(rows.tobytes(), row(*expected).tobytes())
        for bad in ("70:71", "5:5", "9:3", "x", "1:99", "-1:"):
            self.fails(2, "--rows", "logits", "-m", MODEL, "--tokens", "t", "-o", "y.npy", "--rows", bad)
        self.assertFalse(os.path.exists(self.path("y.npy")))

    def test_nothing_changes_a_bit(self):
        whole = self.logits("--chunk", "70")
        for words in (["--chunk", "1"], ["--chunk", "7"], ["--chunk", "64"], ["--threads", "1"], ["--kernels", "c"],
                      ["--page-tokens", "16"], ["--restore-at", "1"], ["--restore-at", "64"], ["--restore-at", "69"],
                      ["--restore-at", "70"]):
            self.assertEqual(self.logits(*words), whole, words)
        self.assertNotEqual(self.logits("--kv", "q8"), whole)  # the comparison can fail
        self.fails(2, "--restore-at", "logits", "-m", MODEL, "--tokens", "t", "-o", "y.npy", "--restore-at", "71")

    def test_streams(self):
        tokens = read(self.path("t"))
        out = self.ramet("logits", "-q", "-m", MODEL, "--tokens", "-", "-o", "-", stdin=tokens, text=False)
        self.assertEqual(out, self.logits())
        report = self.json("logits", "-m", MODEL, "--tokens", "t", "-o", "x.npy", "--rows", "last")
        self.assertEqual((report["rows"], report["vocabulary"], report["first_row"]), (1, 1024, 69))
        self.fails(2, "token", "logits", "-m", MODEL, "--tokens", "-", "-o", "x.npy", stdin=b"1 2 99999")

    def test_interrupt_leaves_no_file(self):
        write(self.path("long"), b"7 " * 2000)
        words = [RAMET, "logits", "-m", MODEL, "--tokens", "long", "-o", "y.npy", "--chunk", "1"]
        process = subprocess.Popen(words, cwd=self.work, stderr=subprocess.PIPE, env=self.environment)
        deadline = time.monotonic() + 60
        while not any("y.npy" in name for name in os.listdir(self.work)):  # until it writes
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.002)
        self.assertNotIn("y.npy", os.listdir(self.work))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(sorted(os.listdir(self.work)), ["long", "t"])

    def test_perplexity(self):
        text = TEXT + ", saying unto them"
        write(self.path("p"), text.encode())
        ids = json.loads(self.ramet("tokenize", "-m", MODEL, "-p", text))
        r = self.json("perplexity", "-m", MODEL, "-f", "p")
        self.assertEqual((r["tokens"], r["windows"], r["window"]), (len(ids), 1, 512))
        # the same from the logits: BOS first, every token of the text scored
        write(self.path("t"), " ".join(map(str, [0] + ids)).encode())
        _, rows = read_npy(self.logits())
        losses = []
        for i, token in enumerate(ids):
            row = rows[i * 1024 : (i + 1) * 1024]
            top = max(row)
            losses.append(top + math.log(sum(math.exp(v - top) for v in row)) - row[token])
        mean = sum(losses) / len(losses)
        error = math.sqrt(sum((l - mean) ** 2 for l in losses) / (len(losses) - 1) / len(losses))
        self.assertAlmostEqual(r["mean_negative_log_likelihood"], mean, places=6)
        self.assertAlmostEqual(r["standard_error"], error, places=6)
        self.assertAlmostEqual(r["perplexity"], math.exp(mean), places=4)
        short = self.json("perplexity", "-m", MODEL, "-f", "-", "-c", "5", stdin=text.encode())
        self.assertEqual((short["tokens"], short["windows"]), (len(ids), math.ceil(len(ids) / 4)))
        self.assertRegex(self.ramet("perplexity", "-m", MODEL, "-f", "p"), r"^mean .* \+- .* perplexity ")
        self.fails(2, "so short a text", "perplexity", "-m", MODEL, "-f", "-", stdin=b"")


class Measuring(Case):
    SMALL = ["bench", "-m", MODEL, "--prompt", "48", "--gen", "2", "--forks", "5", "--reps", "1"]

    def test_bench(self):
        r = json.loads(self.ramet(*self.SMALL, "-o", "json"))
        for key in ("model", "arch", "threads", "kernels", "kv", "numerics_id", "read_bytes_per_second",
                    "copy_bytes_per_second"):
            self.assertIn(key, r)
        rows = {row["name"]: row for row in r["rows"]}
        self.assertEqual(list(rows), ["load", "prefill", "decode", "branches", "fork", "snapshot",
                                      "snapshot_synced", "restore", "spill", "read_back", "match"])
        self.assertEqual((rows["prefill"]["tokens"], rows["decode"]["tokens"], rows["branches"]["count"]), (48, 2, 8))
        self.assertEqual((rows["fork"]["count"], rows["fork"]["pages_allocated"]), (5, 0))
        self.assertEqual(rows["fork"]["pages_a_copy_would_need"], 5)
        self.assertEqual(rows["match"]["tokens"], 48)
        self.assertGreater(rows["snapshot"]["bytes"], 48 * r["kv_bytes_per_token"])
        self.assertEqual(rows["snapshot"]["bytes"], rows["restore"]["bytes"])
        for row in rows.values():
            self.assertGreater(row["nanoseconds"], 0)
        limited = {name for name, row in rows.items() if "share_of_limit" in row}
        self.assertEqual(limited, {"load", "decode", "branches", "snapshot", "restore", "spill", "read_back"})

    def shares(self, model, unread_bytes, positions):
        """Whether decoding reads these bytes a step: the weights but `unread_bytes`, and the positions that a layer sees."""
        r = json.loads(self.ramet(*self.SMALL, "-m", model, "--prompt", "130", "--branches", "3", "-o", "json"))
        rows = {row["name"]: row for row in r["rows"]}
        for name, seen in positions.items():
            step = r["weights_bytes"] - unread_bytes + seen * r["kv_bytes_per_token"]
            wanted = 2e9 * step / rows[name]["nanoseconds"] / r["read_bytes_per_second"]
            self.assertAlmostEqual(rows[name]["share_of_limit"] / wanted, 1, places=6)

    def test_bench_limits(self):
        # In the middle of 2 tokens: 131 positions, of which the last 3 are a branch's own and the others shared pages.
        self.shares(MODEL, 0, {"decode": 131, "branches": 128 + 3 * 3})
        tiny = os.path.join(ROOT, "tests", "data", "reference", "tiny")
        window, sliding = 32, 6 / 7  # positions, and the share of layers that see only these
        self.shares(os.path.join(tiny, "gemma3", "gemma3-f32.gguf"), 0,
                    {"decode": sliding * window + (1 - sliding) * 131,
                     "branches": sliding * (window - 3 + 9) + (1 - sliding) * (128 + 9)})
        with open(os.path.join(tiny, "llama-gqa", "reference.json"), encoding="utf-8") as file:
            config = json.load(file)["config"]
        table = -(-config["vocab_size"] // 16) * 16 * config["hidden_size"] * 4  # an embedding that is not the output
        self.shares(os.path.join(tiny, "llama-gqa", "llama-gqa-f32.gguf"), table, {"decode": 131, "branches": 128 + 9})

    def test_bench_branches(self):
        r = json.loads(self.ramet(*self.SMALL, "--prompt", "64", "--branches", "1,3", "-o", "json"))
        rows = [row for row in r["rows"] if row["name"] == "branches"]
        self.assertEqual([(row["count"], row["tokens"]) for row in rows], [(1, 2), (3, 6)])
        self.assertEqual([row["pages_allocated"] for row in rows], [1, 3])  # 64 shared positions, a page each for the rest
        self.assertEqual([row["pages_a_copy_would_need"] for row in rows], [2, 6])
        self.fails(2, "--branches: no token id", *self.SMALL, "--branches", "two")
        self.fails(2, "from 1 to 4096, not 0", *self.SMALL, "--branches", "1,0")
        self.fails(2, "at most 16", *self.SMALL, "--branches", ",".join("1" * 17))

    def test_bench_memory(self):
        r = json.loads(self.ramet(*self.SMALL, "-o", "json"))
        memory, load, ready = r["memory"], r["load"], r["rows"][0]["nanoseconds"]
        self.assertEqual(set(load), {f"{part}_nanoseconds" for part in
                                     ("model", "parse", "repack", "digest", "vocab", "engine")} | {"digest_cached"})
        self.assertEqual(load["model_nanoseconds"] + load["engine_nanoseconds"], ready)
        for part in ("repack", "digest", "vocab"):  # beside each other, once the file's description is read
            self.assertGreater(load[f"{part}_nanoseconds"], 0)
            self.assertLessEqual(load["parse_nanoseconds"] + load[f"{part}_nanoseconds"], load["model_nanoseconds"])
        self.assertGreater(memory["vocab_bytes"], 0)
        self.assertEqual(memory["file_bytes"], os.path.getsize(MODEL))
        self.assertGreater(memory["weights_bytes"], memory["file_bytes"] / 2)
        self.assertGreaterEqual(memory["peak_bytes"], memory["resident_bytes"])
        if os.path.exists("/proc/self/status"):  # and without the buffers that measure bandwidth, hundreds of MB
            self.assertGreater(memory["resident_bytes"], memory["weights_bytes"] + memory["kv_bytes"])
            self.assertLess(memory["peak_bytes"], 100 * memory["file_bytes"])

    def test_bench_forms(self):
        self.assertRegex(self.ramet(*self.SMALL, "-o", "md"), r"(?m)^\| decode +\|")
        text = self.ramet(*self.SMALL)
        self.assertRegex(text, r"(?m)^ramet .* tiny-llama.* llama .* threads")
        self.assertRegex(text, r"(?m)^load: file read .* repack .* GB/s\), SHA-256 .*, tokenizer .*; engine ")
        self.assertRegex(text, r"(?m)^holds: weights .*, scratch .*, tokenizer ")
        self.fails(2, "md.csv.json", *self.SMALL, "-o", "xml")
        lines = self.ramet(*self.SMALL, "-o", "csv").splitlines()
        self.assertEqual(lines[0], "name,branches,amount,unit,nanoseconds,share_of_limit")
        self.assertRegex(lines[3], r"^decode,1,2,tokens,\d+,[0-9.e-]+$")
        self.fails(2, "--json or -o csv", *self.SMALL, "-o", "csv", "--json")
        json.loads(self.ramet(*self.SMALL, "-o", "json", "--json"))

    def test_verify(self):
        out = self.ramet("verify", "-m", MODEL)
        self.assertRegex(out, r"^check +result +detail\n")
        self.assertRegex(out, r"(?m)^prefill == decode +pass +difference 0\.00e\+00")
        self.assertNotIn("FAIL", out)
        self.environment["TMPDIR"] = self.path("missing")
        self.fails(1, "cannot create .*work/missing", "verify", "-m", MODEL)


class Identity(Case):
    """Which model it is, remembered from one command to the next."""

    def check(self, model):
        built = self.json("ctx", "build", "-m", model, "-p", "x", "-o", "x.ramet")
        self.assertEqual(built["weights_sha256"], hashlib.sha256(read(model)).hexdigest())

    def is_remembered(self, model, *more):
        return self.json("bench", "-q", "-m", model, "--prompt", "16", "--gen", "1", "--branches", "1", "--reps", "1",
                         *more)["load"]["digest_cached"]

    def entries(self, top):
        folder = os.path.join(top, "ramet", "digests")
        return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []

    def test_remembered_until_the_file_changes(self):
        model, tuned, cache = self.path("m.gguf"), self.path("tuned.gguf"), os.path.join(self.home, ".cache")
        write(model, read(MODEL))
        os.rename(self.other_model(), tuned)
        time.sleep(2.1)  # a file that was written just now is not trusted
        self.assertFalse(self.is_remembered(model, "--no-digest-cache"))
        self.assertEqual(self.entries(cache), [])
        self.check(model)
        (entry,) = self.entries(cache)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(entry)).st_mode), 0o700)
        self.check(model)
        self.assertTrue(self.is_remembered(model))
        self.assertFalse(self.is_remembered(model, "--no-digest-cache"))

        file = self.build("a.ramet")
        self.ramet("run", "-q", "-n", "1", "-m", model, "-i", file)  # a copy under another name is the same model
        before = os.stat(model)
        os.replace(tuned, model)  # a fine-tune of the same layout in its place
        os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
        for _ in range(2):
            self.fails(4, "a.ramet", "run", "-m", model, "-i", file)
        self.check(model)
        write(entry, b"damaged")
        self.check(model)

    def test_where_it_is_kept(self):
        elsewhere = self.path("elsewhere")
        self.environment["XDG_CACHE_HOME"] = elsewhere
        self.check(MODEL)
        self.assertEqual(len(self.entries(elsewhere)), 1)
        self.assertTrue(self.is_remembered(MODEL))
        os.chmod(os.path.join(elsewhere, "ramet", "digests"), 0o777)  # others could write there
        self.assertFalse(self.is_remembered(MODEL))
        for nowhere in ("relative", MODEL):  # the XDG specification wants the first ignored; the other is a file
            self.environment["XDG_CACHE_HOME"] = nowhere
            self.environment.pop("HOME", None)
            self.check(MODEL)
        self.assertFalse(os.path.exists(self.path("relative")))


class Policy(Case):
    ENTERPRISE = ("--profile", "enterprise")

    def setUp(self):
        super().setUp()
        write(self.path("key"), bytes(range(32)))
        os.chmod(self.path("key"), 0o600)
        self.k = ("--context-key", self.path("key"))

    def test_enterprise_is_encrypted_or_refused(self):
        plain, sealed = self.build("plain.ramet"), self.build("sealed.ramet", TEXT, *self.k, *self.ENTERPRISE)
        self.assertTrue(self.json("ctx", "info", sealed)["encrypted"])
        run, fork = ("run", "-n", "1", "-m", MODEL, "-i"), ("ctx", "fork", "-m", MODEL, "-i")
        for words in (run, fork, ("ctx", "info", "--verify"), ("ctx", "tree")):
            self.ramet(*words, sealed, *self.k, *self.ENTERPRISE)
            self.ramet(*words, plain, *self.k)
            self.fails(5, "plain.ramet.*not encrypted", *words, plain, *self.k, *self.ENTERPRISE)

    def test_enterprise_needs_a_key(self):
        build = ("ctx", "build", "-m", MODEL, "-p", TEXT, "-o", "a.ramet", *self.ENTERPRISE)
        self.fails(2, "enterprise.*give --context-key", *build)
        self.assertFalse(os.path.exists(self.path("a.ramet")))
        self.fails(2, "enterprise.*give --context-key", "run", "-m", MODEL, "-p", TEXT, *self.ENTERPRISE)
        self.environment["RAMET_CONTEXT_KEY"] = self.k[1]
        self.ramet(*build)

    def test_enterprise_takes_no_legacy(self):
        file = self.build("a.ramet", TEXT, *self.k)
        for words in (("run", "-m", MODEL, "-i"), ("ctx", "info", "--verify"), ("ctx", "tree")):
            self.fails(2, "allow-legacy-snapshots.*enterprise", *words, file, *self.k, *self.ENTERPRISE,
                       "--allow-legacy-snapshots")
        self.fails(2, "--profile takes enterprise", "ctx", "info", file, "--profile", "home")

    def test_generations(self):
        old, new = self.build("old.ramet"), self.build("new.ramet", TEXT, "--generation", "18446744073709551615")
        self.assertEqual(self.json("ctx", "info", old)["generation"], 0)
        self.assertEqual(self.json("ctx", "info", new)["generation"], 2**64 - 1)
        middle = self.build("middle.ramet", TEXT, "--generation", "7", *self.k)
        for words in (("run", "-n", "1", "-m", MODEL, "-i"), ("ctx", "fork", "-m", MODEL, "-i"),
                      ("ctx", "info", "--verify"), ("ctx", "tree")):
            self.ramet(*words, middle, *self.k, "--min-generation", "7")
            self.fails(5, "middle.ramet.*generation 7.*8", *words, middle, *self.k, "--min-generation", "8")
            self.fails(5, "old.ramet.*generation 0.*1", *words, old, "--min-generation", "1")
            self.ramet(*words, old, "--min-generation", "0")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    RAMET = os.path.abspath(sys.argv.pop(1))
    unittest.main()
