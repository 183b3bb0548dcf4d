"""Mappings of an account, as several tests write them into a file."""

from __future__ import annotations

HALVES = """mappings {
  "orders.*": [
    { destination: "orders.v1.$1", weight: 50% }
    { destination: "orders.v2.$1", weight: 50% }
  ]
}
"""
CANARY = """mappings = {
  "orders.*": [ { destination: "v1.$1", weight: 98% }, { destination: "v2.$1", weight: 2% } ]
}
"""
SHOP = """mappings {
  "orders.*.*": [
    { destination: "orders.v1.$1.$2", weight: 60% }
    { destination: "orders.v2.$1.$2", weight: 40% }
  ]
  "paid.*": "paid.{{partition(3,1)}}.$1"
}
"""
