"""A policy onto P4Runtime switches: all of them, or none.

`deploy` connects to every switch, asks to be primary, reads what it holds, and only then writes: the differences, in an
order that traffic can live with. It reads back what it wrote. If anything fails, every switch that was touched is
brought back to what it held. This room alone knows gRPC; it is loaded for a deployment only.
"""
