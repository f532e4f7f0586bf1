"""`expctl.results` on a ledger: `EXPCTL` names the program, `EXPCTL_TEST_LEDGER` a project.

The project has job 12 (two variants, three runs each, two ranks), job 13 (a trial failed, one never began; loader threads are swept), job 14 (as 12)
and the published ones. tests/integration/slow/results.rs makes it, and runs these tests on Pythons with and without pandas, pyarrow and polars.
"""

import importlib.util
import os
import subprocess
import sys
import unittest
import warnings
from datetime import datetime, timezone

import expctl.results as xr

ROOT = os.environ["EXPCTL_TEST_LEDGER"]
INSTALLED = {name for name in ("pandas", "polars", "pyarrow") if importlib.util.find_spec(name)}


def rows_of(table):
    """The rows of a table of any form, as dicts in which what is missing is None."""
    if isinstance(table, list):
        return table
    if hasattr(table, "to_pylist"):
        return table.to_pylist()
    if hasattr(table, "to_dicts"):
        return table.to_dicts()
    # NaN is not equal to itself.
    records = table.to_dict("records")
    return [{name: None if value is None or value != value else value for name, value in row.items()} for row in records]


class Tables(unittest.TestCase):
    def forms(self):
        forms = ["dicts"]
        forms += ["pandas"] if "pandas" in INSTALLED else []
        forms += ["polars"] if "polars" in INSTALLED else []
        return forms + (["arrow"] if "pyarrow" in INSTALLED else [])

    def test_every_form_has_the_same_trials_and_steps(self):
        job = xr.job(12, root=ROOT)
        trials, steps = job.trials(), job.steps()
        self.assertEqual((len(trials), len(steps)), (6, 6 * 2 * 22))
        by_trial = {row["trial"]: row for row in trials}
        ids = by_trial["ids-r1-0a1b2c"]
        self.assertEqual((ids["samples_per_s"], ids["it_per_s"], ids["loader.workers"]), (560.0, 10.0, 1))
        self.assertEqual((ids["state"], ids["collate_exposed_ms"], ids["class"]), ("completed", 50.0, "measured"))
        for form in self.forms():
            with self.subTest(form):
                self.assertEqual(rows_of(job.trials(as_=form)), trials)
                self.assertEqual(rows_of(job.steps(as_=form)), steps)

    def test_steps_are_chosen_by_trial_rank_and_warm_up(self):
        job = xr.job("12", root=ROOT)
        for form in self.forms():
            with self.subTest(form):
                chosen = rows_of(job.steps(as_=form, trial="lazy-r1-0a1b2c", rank=1, measured=True))
                self.assertEqual([row["step"] for row in chosen], list(range(2, 22)))
                self.assertEqual({(row["rank"], row["wall_ns"]) for row in chosen}, {(1, 400_000_000)})
                self.assertEqual(len(rows_of(job.steps(as_=form, measured=False))), 6 * 2 * 2)

    def test_packages_that_are_not_there_are_named(self):
        job = xr.job(12, root=ROOT)
        for form, package in [("pandas", "pandas"), ("polars", "polars"), ("arrow", "pyarrow")]:
            if package not in INSTALLED:
                with self.assertRaisesRegex(ImportError, package):
                    job.trials(as_=form)
        with self.assertRaisesRegex(ValueError, "there are dicts, pandas, polars, arrow"):
            job.trials(as_="excel")

    def test_nothing_is_imported_before_it_is_asked_for(self):
        code = (
            f"import sys, expctl.results as xr; job = xr.job(12, root={ROOT!r}); job.trials(), job.steps(), xr.compare(12, root={ROOT!r})\n"
            "print([name for name in ('pandas', 'polars', 'pyarrow', 'numpy', 'torch', 'expctl._native') if name in sys.modules])"
        )
        said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        self.assertEqual(said.strip(), "[]")

    def test_trials_that_are_missing_are_warned_of(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            job = xr.job(13, root=ROOT)
            self.assertEqual(seen, [])
            trials = {row["trial"]: row for row in job.trials()}
        (warning,) = seen
        self.assertIs(warning.category, xr.IncompleteWarning)
        self.assertIn("1 of 4 trials did not end: late-r1-0a1b2c", str(warning.message))
        self.assertEqual(warning.filename, __file__)
        dies, late = trials["dies-r1-0a1b2c"], trials["late-r1-0a1b2c"]
        self.assertEqual((dies["state"], dies["reason"]), ("failed", "rank 1 was killed: <out of memory>"))
        self.assertEqual((late["state"], late["samples_per_s"]), ("not started", None))

    def test_published_jobs_have_rates_and_no_steps(self):
        job = xr.job(392, root=ROOT)
        self.assertTrue(job.imported)
        (row, *_) = job.trials()
        self.assertEqual((row["class"], row["it_per_s"]), ("imported", 0.42))
        self.assertAlmostEqual(row["samples_per_s"], 47.04)
        with self.assertRaisesRegex(xr.Refused, "was published by others") as refused:
            job.steps()
        self.assertEqual(refused.exception.exit_code, 7)


class Notebooks(unittest.TestCase):
    def test_jobs_are_listed_newest_first(self):
        listed = xr.jobs(root=ROOT)
        self.assertEqual(sorted(one.job for one in listed), [12, 13, 14])
        one = next(one for one in listed if one.job == 13)
        self.assertEqual((one.config, one.backend), ("086_ddp", "local"))
        self.assertEqual(one.trials, {"completed": 2, "failed": 1, "not_started": 1})
        self.assertEqual(one.submitted, datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc))
        self.assertEqual(one.open(ROOT).config, "086_ddp")
        self.assertIn("| 13 | 086_ddp | local | 2026-01-02 03:04 UTC | 2 completed, 1 failed, 1 not started |", listed._repr_markdown_())
        self.assertIn("<td>2 completed, 1 failed, 1 not started</td>", listed._repr_html_())

    def test_a_job_is_a_table_in_which_nothing_is_markup(self):
        job = xr.job(13, root=ROOT)
        shown = job._repr_html_()
        self.assertIn("<td>rank 1 was killed: &lt;out of memory&gt;</td>", shown)
        self.assertEqual(shown.count("<tr>"), 1 + 4)
        self.assertIn("| ids-r1-0a1b2c | completed | 10 | 560 |", job._repr_markdown_().replace(" [10–10]", "").replace(" [560–560]", ""))
        self.assertEqual(repr(job), "<job 13 of 086_ddp>")


class Comparing(unittest.TestCase):
    def test_figures_are_those_of_the_program(self):
        found = xr.compare(12, root=ROOT)
        lazy, ids = found.row("lazy"), found.row("ids")
        self.assertTrue(lazy.baseline and lazy.ratio is None and not ids.baseline)
        # Of 400, 410, 390 and of 100, 102, 98 ms; the interval is that which SciPy gives (tests/integration/compare.rs).
        self.assertAlmostEqual(ids.ratio.value, 3.9996998574311537, places=12)
        self.assertAlmostEqual(ids.ratio.interval.low, 3.795808644783065, places=9)
        self.assertAlmostEqual(ids.ratio.interval.high, 4.21454305172148, places=9)
        self.assertTrue(4.0 in ids.ratio.interval and 1.0 not in ids.ratio.interval)
        self.assertEqual(len(ids.samples_per_s), 3)
        self.assertTrue(ids.samples_per_s_mean in ids.samples_per_s_interval)
        self.assertIn(("workers", "4", "1"), ids.confounds)
        self.assertEqual([group.mode for group in found], ["train"])
        self.assertIn("| lazy |", found._repr_markdown_().replace("Lazy", "lazy").replace("**", ""))
        with self.assertRaisesRegex(LookupError, "0 rows are called 'lasy'; there are 'lazy' of job 12"):
            found.row("lasy")

    def test_the_baseline_can_be_another_job(self):
        found = xr.compare(12, 14, baseline=14, root=ROOT)
        self.assertTrue(found.row("lazy", job=14).baseline)
        with self.assertRaisesRegex(LookupError, "2 rows are called 'ids'"):
            found.row("ids")

    def test_what_cannot_be_answered_is_an_exception(self):
        with self.assertRaisesRegex(xr.JobNotFound, "there is no job 99"):
            xr.compare(99, root=ROOT)
        with self.assertRaisesRegex(LookupError, "measured jobs in"):
            xr.job(99, root=ROOT)
        with self.assertRaisesRegex(xr.ResultsError, "there is no folder") as failed:
            xr.jobs(root="/nonexistent")
        self.assertEqual(failed.exception.exit_code, 3)
        with self.assertRaises(TypeError):
            xr.compare(root=ROOT)

    def test_a_program_that_is_not_there_is_named(self):
        code = f"import expctl.results as xr\ntry: xr.jobs(root={ROOT!r})\nexcept xr.ProgramNotFound as e: print(e)"
        for named, message in [("", "there is no program expctl in PATH; install it"), ("/nonexistent/expctl", "cannot be run")]:
            environment = {**os.environ, "EXPCTL": named, "PATH": "/nonexistent"}
            done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
            self.assertIn(message, done.stdout)


if __name__ == "__main__":
    unittest.main()
