"""Which device a rank takes, on a machine whose torch has none: `python -m unittest discover python/tests`."""

import json
import os
import sys
import tempfile
import unittest
from unittest import mock

import expctl
import torch


class Events:
    """What `torch.cuda` gives a stage: events with the time of a clock that is told."""

    now = 0.0

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            self.waited = False

        def record(self):
            self.at = Events.now

        def synchronize(self):
            self.waited = True

        def elapsed_time(self, end):
            assert end.waited
            return end.at - self.at


class Devices(unittest.TestCase):
    def chosen(self, device):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trial.json")
            with open(path, "w") as file:
                json.dump({"settings": {"launch": {"device": device}}}, file)
            with mock.patch.dict(os.environ, {"EXPCTL_TRIAL": path}):
                return expctl.torch_device()

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_the_trial_says_what_ranks_compute_on(self):
        self.assertEqual(self.chosen("cpu"), torch.device("cpu"))
        self.assertEqual(self.chosen("auto"), torch.device("cpu"))
        with self.assertRaisesRegex(RuntimeError, 'launch.device is "cuda", but torch has no GPU'):
            self.chosen("cuda")

    def test_ranks_take_the_gpu_of_their_number(self):
        with (
            mock.patch.object(torch.cuda, "is_available", lambda: True),
            mock.patch.object(torch.cuda, "device_count", lambda: 2),
            mock.patch.object(torch.cuda, "set_device") as made_current,
            mock.patch.dict(os.environ, {"LOCAL_RANK": "3"}),
        ):
            self.assertEqual(self.chosen("cuda"), torch.device("cuda", 1))
            made_current.assert_called_once_with(torch.device("cuda", 1))
            self.assertEqual(self.chosen("cpu"), torch.device("cpu"))

    def test_a_stage_of_a_device_lasts_from_event_to_event(self):
        fake = mock.Mock()
        fake.cuda.is_initialized.return_value = True
        fake.cuda.Event = Events.Event
        run = expctl.Run(program="test", warmup=0, steps=2)
        run._table = None
        taken = []
        with mock.patch.dict(sys.modules, {"torch": fake}):
            for step in run.steps():
                taken.append(step)
                for name, ms in (("forward", 0.25), ("backward", 0.5)):
                    with step.stage(name, device=True):
                        Events.now += ms
        for step in taken:
            self.assertEqual(step.exposed, {"forward": 250_000, "backward": 500_000})
            self.assertEqual(step.busy, step.exposed)


if __name__ == "__main__":
    unittest.main()
