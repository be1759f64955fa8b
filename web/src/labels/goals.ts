import type { components } from "../api/schema";
import { seconds } from "./numbers";
import type { Tone } from "./tone";

export type FreshnessGoal = components["schemas"]["FreshnessGoalView"];

const PER_CENT = 100;
const HOURS_OF_A_DAY = 24;

/** "99.5 % of the time at most 10 s, over 7 days". */
export function goalWords({ goal }: FreshnessGoal): string {
  const hours = goal.window_hours;
  const window = hours % HOURS_OF_A_DAY === 0 && hours > HOURS_OF_A_DAY ? `${hours / HOURS_OF_A_DAY} days` : `${hours} hours`;
  return `${goal.percent} % of the time at most ${seconds(goal.lag_seconds)}, over ${window}`;
}

/** In one word, with its tone: a budget that is spent is worse than one that is used too fast. */
export function goalState({ met, alarms, compliance_percent }: FreshnessGoal): { tone: Tone; word: string } {
  if (compliance_percent === null) return { tone: "unknown", word: "not measured yet" };
  if (!met) return { tone: "bad", word: "budget spent" };
  if (alarms.includes("fast_burn")) return { tone: "warn", word: "budget used fast" };
  if (alarms.includes("slow_burn")) return { tone: "warn", word: "budget used too fast" };
  return { tone: "good", word: "met" };
}

/** Never rounded up to the goal or to 100 %. */
export function complianceWords({ compliance_percent }: FreshnessGoal): string {
  return compliance_percent === null ? "–" : `${Math.floor(compliance_percent * PER_CENT * 10) / (PER_CENT * 10)} %`;
}

/** What is left of the budget; where more was used, how much more. */
export function leftWords({ budget }: FreshnessGoal): string {
  return budget.left_seconds < 0 ? `none, ${seconds(-budget.left_seconds)} too much was used` : seconds(budget.left_seconds);
}

/** The used share of the budget, 0 to 1 and more. */
export const usedShare = ({ budget }: FreshnessGoal): number => budget.used_seconds / budget.total_seconds;
