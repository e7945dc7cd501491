"""What people see: values of operators as sections, rendered for a terminal or as HTML.

``filters/``, ``rules/`` and ``joins/`` say in words what their operator's view holds;
``terminal/`` and ``html/`` render sections and name no operator.
"""
