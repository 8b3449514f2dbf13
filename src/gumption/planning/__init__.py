"""Planning: what a run will do, before it is paid for.

simulator.py   `pipeline.py` on a virtual clock
counting.py    the simulator's recorder: counters instead of rows
staleness.py   closed forms of the age of what is trained on
hardware.py    peaks of accelerators, with sources
speed.py       tokens per second of a generator and a trainer
screening.py   closed forms of what an allocation rule costs and brings
planner.py     searches a setting for a budget
"""
