"""Contract suites: the promises of each Protocol, tested over every implementation of it.

test_proposers.py      hillclimb.agent.proposer.Proposer
test_devices.py        hillclimb.harness.device.device.Device
test_judge_pools.py    hillclimb.harness.judge.protocol.Judge
test_rungs.py          hillclimb.harness.sandbox.rungs.choose.Rung
"""
