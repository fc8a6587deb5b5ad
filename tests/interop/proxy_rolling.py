"""A rolling restart behind haproxy, as `make rolling-restart` shows it, with fewer clients and quicker checks."""

import unittest

import _kit  # first: it knows where the modules behind it are  # noqa: F401
from _proxies import QUICK_CHECKS
from _rolling import faults, roll

CLIENTS = 60


class Rolling(unittest.TestCase):
    def test_haproxy(self):
        seen = roll(self, "haproxy", CLIENTS, 50, 1500, QUICK_CHECKS["haproxy"])
        self.assertEqual(list(faults(seen, CLIENTS)), [])
        # Each was somewhere, and all places have been left.
        self.assertGreaterEqual(seen["ended"]["1001"], CLIENTS)

    def test_what_is_noticed(self):
        good = {"connections": 90, "sent": 7, "acknowledged": 7, "wrong": 0, "refused": 0, "ended": {"1001": 30}}
        self.assertEqual(list(faults(good, 60)), [])
        for change, word in (({"ended": {"1001": 29, "1006": 1}}, "1006"), ({"ended": {"1001": 29}}, "29 ended"),
                             ({"refused": 1}, "refused"), ({"wrong": 1}, "other"), ({"acknowledged": 6}, "6 answered")):
            with self.subTest(change=change):
                [fault] = faults({**good, **change}, 60)
                self.assertIn(word, fault)


if __name__ == "__main__":
    unittest.main()
