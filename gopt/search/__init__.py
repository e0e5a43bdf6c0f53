"""Searches over populations; each knows a cost only as a callable."""
