"""What training asks of a machine, counted and measured: operations, memory, input, messages, and roofs."""
