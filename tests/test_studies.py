"""Every study is rebuilt from its stored records by one command."""

import json
import subprocess
import sys


def test_endpoint_reversal_is_rebuilt_from_its_records():
    done = subprocess.run(
        [sys.executable, "-m", "studies.endpoint_reversal", "--from-records"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["name"] == "endpoint_reversal"
    figures = found["figures"]
    # the finding, not the digits: ahead at the fixed step, not at the best checkpoint, and behind on much data
    assert figures["dyt:paper_50000_fixed_step"]["interval"][1] < 0
    assert figures["dyt:paper_50000_best_checkpoint"]["delta_rel"] > 0
    assert figures["dyt:paper_3000000_best_checkpoint"]["interval"][0] > 0.1
