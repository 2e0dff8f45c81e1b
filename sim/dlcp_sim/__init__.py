"""The simulator, installed as `dlcp_sim`: events, links, queues, and hosts around the compiled engine.

Empty for now. It runs the engine of `native/engine`, the same code that ships, and models only what is
around it.
"""
