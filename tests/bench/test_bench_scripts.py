"""The scripts of bench/ on a small file of measurements: what is merged, what the tables say, what the plots draw.

usage: test_bench_scripts.py [TestClass.test_name ...]
Standard library only; nothing is measured.
"""

import os
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(os.path.abspath(__file__)).parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))

import chart
import plot
import results
import tables

TINY = ROOT / "tests" / "data" / "bench" / "tiny.csv"
MODEL = "SmolLM2-135M-Instruct.Q4_1"
SVG = "{http://www.w3.org/2000/svg}"


class Case(unittest.TestCase):
    def setUp(self):
        self.rows = results.read(TINY)

    def refused(self, pattern, function, *arguments):
        with self.assertRaises(SystemExit) as caught:
            function(*arguments)
        self.assertRegex(str(caught.exception), pattern)

    def scaled(self, figure, factor, program="ramet"):
        """The same measurements, one figure of one program multiplied."""
        return [
            row._replace(value=row.value * factor) if (row.figure, row.program) == (figure, program) else row
            for row in self.rows
        ]


class File(Case):
    def test_written_and_read_it_is_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "copy.csv"
            results.write(path, self.rows)
            self.assertEqual(path.read_bytes(), TINY.read_bytes())

    def test_a_group_measured_again_replaces_itself_alone(self):
        group = [row for row in self.rows if results.group_of(row) == ("speed", MODEL, 2, 512)]
        new = [row._replace(value=1.0) for row in group[:3]]
        merged = results.replace(self.rows, new)
        self.assertEqual(len(merged), len(self.rows) - len(group) + 3)
        self.assertEqual([row for row in merged if results.group_of(row) == ("speed", MODEL, 2, 512)], new)
        self.assertEqual([row for row in merged if row not in new], [row for row in self.rows if row not in group])

    def test_another_file_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "other.csv"
            path.write_text("cpu,model,value\nx,y,1\n", encoding="utf-8")
            self.refused("not a file of measurements", results.read, path)
            self.refused("no such file", results.read, Path(folder) / "none.csv")


class Tables(Case):
    def line(self, text, *words):
        found = [line for line in text.splitlines() if all(word in line for word in words)]
        self.assertEqual(len(found), 1, text)
        return [cell.strip() for cell in found[0].strip("|").split("|")]

    def test_speed(self):
        self.assertEqual(
            self.line(tables.speed(self.rows), "| 512 |"),
            [
                MODEL,
                "2",
                "512",
                "1,000 (900-1,200)",
                "250 (150-300)",
                "4.00 (4.00-6.00)",
                "125 (112-150)",
                "62.5 (37.5-75.0)",
                "2.00 (2.00-3.00)",
                "90 %",
                "0.25",
            ],
        )

    def test_state(self):
        self.assertEqual(
            self.line(tables.state(self.rows), "| 2048 |"),
            [MODEL, "2", "2048", "200", "10.2", "50 %", "41.0", "8.19", "60 %", "375 (250-500)", "2.50", "-"],
        )
        self.assertEqual(self.line(tables.batches(self.rows), "| 512 |")[3:], ["100, 1.0 x", "450, 4.5 x"])
        self.assertEqual(self.line(tables.memory(self.rows), "| 512 |")[2:], ["24.0", "27.0 / 27.0", "48.0 / 216"])
        self.assertEqual(self.line(tables.process(self.rows), "| 512 |")[-1], "1.10")

    def test_conditions(self):
        text = tables.conditions(self.rows)
        for words in (
            "Some CPU, 2 GHz; cores: 2",
            "0.5 to 0.5; after it: 1.8 to 1.8",
            "commit abc",
            "llama.cpp def",
            "2026-01-02",
        ):
            self.assertIn(words, text)

    def met(self, what, rows):
        return self.line(tables.bars(rows), what)[-1]

    def test_bars(self):
        self.assertEqual(
            self.line(tables.bars(self.rows), "prefill 512, Q4_1")[1:],
            [">= 3 x", "4.00 x", f"{MODEL}, 2 threads, 512 tokens", "yes"],
        )
        self.assertEqual(self.line(tables.bars(self.rows), "prefill 512, Q6_K")[2], "not measured")
        # control: what fails must read no, in both directions
        for what, figure, factor in (
            ("prefill 512, Q4_1", "prefill.tokens_per_second", 0.7),
            ("against prefill", "restore.nanoseconds", 2),
            ("SmolLM2 ready", "load.nanoseconds", 3),
            ("8 branches", "branches.tokens_per_second", 0.8),
            ("of read bandwidth", "decode.share_of_limit", 0.8),
        ):
            self.assertEqual(self.met(what, self.rows), "yes", what)
            self.assertEqual(self.met(what, self.scaled(figure, factor)), "no", what)
        self.assertEqual(self.met("restore, of copy", self.rows), "no")

    def test_document(self):
        document = (
            "before\n<!-- table: speed -->\nold\n<!-- end -->\nbetween\n<!-- table: bars -->\n<!-- end -->\nafter\n"
        )
        filled = tables.fill(document, self.rows, TINY.parent)
        self.assertEqual(
            filled,
            "before\n<!-- table: speed -->\n"
            + tables.speed(self.rows)
            + "\n<!-- end -->\nbetween\n<!-- table: bars -->\n"
            + tables.bars(self.rows)
            + "\n<!-- end -->\nafter\n",
        )
        self.assertEqual(tables.fill(filled, self.rows, TINY.parent), filled)
        sped = "<!-- table: sped -->\n<!-- end -->"
        self.refused("no table is called 'sped'", tables.fill, sped, self.rows, TINY.parent)

    def test_a_table_of_another_file(self):
        document = f"<!-- table: speed of {TINY.name} -->\n<!-- end -->\n"
        filled = tables.fill(document, [], TINY.parent)
        self.assertIn(tables.speed(self.rows), filled)
        self.assertEqual(tables.fill(filled, [], TINY.parent), filled)

    def test_a_missing_section_is_named(self):
        half = results.select(self.rows, section="speed")
        self.refused("section 'state'", tables.state, half)
        self.refused("section 'speed'", tables.speed, results.select(self.rows, section="state"))

    def test_the_committed_document_names_tables_that_exist(self):
        names = re.findall(r"<!-- table: (\w+) -->", (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8"))
        self.assertEqual(sorted(names), sorted(tables.TABLES))


class Plots(Case):
    POINTS = {"prefill": 4, "decode": 4, "fork": 2, "memory": 8, "restore": 6, "batch": 4}

    def draw(self, name, rows):
        root = ET.fromstring(chart.draw(plot.PLOTS[name](rows)))
        self.assertEqual(root.tag, SVG + "svg")
        return root

    def test_every_plot(self):
        self.assertEqual(sorted(self.POINTS), sorted(plot.PLOTS))
        for name, n_points in self.POINTS.items():
            root = self.draw(name, self.rows)
            circles = root.findall(SVG + "circle")
            self.assertEqual(len(circles), n_points, name)
            corners = [corner for line in root.iter(SVG + "polyline") for corner in line.get("points").split()]
            self.assertEqual(corners, [f"{c.get('cx')},{c.get('cy')}" for c in circles], name)
            for c in circles:
                self.assertTrue(0 < float(c.get("cx")) < chart.WIDTH and 0 < float(c.get("cy")) < chart.HEIGHT, name)

    def test_a_larger_figure_is_higher(self):
        def heights(rows):
            return [float(c.get("cy")) for c in self.draw("prefill", rows).findall(SVG + "circle")]

        ramet, llama = heights(self.rows)[:2], heights(self.rows)[2:]
        self.assertTrue(all(a < b for a, b in zip(ramet, llama)))
        self.assertEqual(
            heights(self.scaled("prefill.tokens_per_second", 4, "llama.cpp"))[:2],
            heights(self.scaled("prefill.tokens_per_second", 4, "llama.cpp"))[2:],
        )

    def test_a_missing_section_is_named(self):
        self.refused("section 'state'", plot.fork, results.select(self.rows, section="speed"))
        self.refused("section 'speed'", plot.prefill, results.select(self.rows, section="state"))
        self.refused("--prompts", plot.prefill, results.select(self.rows, tokens=512))

    def test_names_are_escaped(self):
        rows = [row._replace(model="a<b&c-x") for row in self.rows]
        self.assertIn("ramet, a<b&c", [t.text for t in self.draw("prefill", rows).iter(SVG + "text")])

    def test_ticks(self):
        self.assertEqual(chart.linear_ticks(9.9), [0, 2, 4, 6, 8, 10])
        self.assertEqual(chart.log_ticks(60, 900), [50, 100, 200, 500, 1000])
        for top in (0.03, 1, 7, 123, 5e6):
            ticks = chart.linear_ticks(top)
            self.assertTrue(3 <= len(ticks) <= 7 and ticks[-1] >= top, ticks)
        for low, high in ((1, 1), (3, 7), (0.2, 900), (10, 50000), (1, 1e9)):
            ticks = chart.log_ticks(low, high)
            self.assertTrue(ticks[0] <= low and high <= ticks[-1] and ticks == sorted(set(ticks)), ticks)


if __name__ == "__main__":
    unittest.main()
