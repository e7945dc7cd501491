"""The page: queries that run, and those of the past, in a browser.

A server of its own thread renders sections as the report does, and names no operator: ``source``
says what a run must tell, ``following`` counts its batches, ``pages`` makes the pages, ``hands``
says what a person may change, ``rule_forms`` asks for rules, ``guard`` lets in who has the token,
``app`` and ``server`` serve them. Imports ``report/`` and what stands
above it, and never Spark; Starlette and uvicorn only when a server starts.
"""
