"""Planning across memory banks: which bank holds each buffer, and at which offset.

:mod:`etdev.planner.banks.problem` defines the input and the result.
"""

from etdev.planner.banks.greedy import banked_greedy
from etdev.planner.banks.own import BankPlanner, bank_planner
from etdev.planner.banks.plan import plan_banks
from etdev.planner.banks.problem import COST_RATIO, Bank, BankedPlan, BankedProblem, BankOverflowError, BanksFullError

__all__ = [
    "COST_RATIO",
    "Bank",
    "BankOverflowError",
    "BankPlanner",
    "BankedPlan",
    "BankedProblem",
    "BanksFullError",
    "bank_planner",
    "banked_greedy",
    "plan_banks",
]
