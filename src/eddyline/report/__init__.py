"""Sections: explanations as values, made by each operator's module and rendered for people.

``filters``, ``rules`` and ``joins`` say in words and figures what their operator's view and its
run's history hold; ``orders`` and ``series`` help them. ``terminal/``, ``html/`` and
``sections.sections_json`` render sections and name no operator. Imports what stands above
``report/``, and never Spark.
"""
