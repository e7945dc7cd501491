"""Adaptive loop of any operator.

It has choices, monitors, records, the journal and the checkpoint.

In: profiles of batches, never rows. Out: plans in force, the decisions that led to them, and the
files of a checkpoint. Read:

* ``choice``: one plan of an operator that could be another, and the situations that plans are of;
* ``order_loop``: the choice of an order, with its ``monitors``, and the orders of classes of rows;
* ``plan_log``: which plan was good in which situation, and its recall;
* ``by_hand``: what a person decides, plans that are pinned and rules that change;
* ``journal``: decisions, and the reports of tasks; ``records``: numbers of a batch and of a run;
* ``checkpoint``: the folder of a run, with its query, its learned state and its lock.

Free of Spark, and names no operator. Imports techniques (``ordering/``, ``change/``, ``routing/``)
and ``stats/``.
"""
