"""The live service: store, API, real-time driver, notifier, auth.

It brings events to the core, makes what the core answers durable, and only then lets effects and answers out.
"""
