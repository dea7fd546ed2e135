"""One connection over all its reconnects: its thread, consumers, sends, ledger."""
