import { Problem } from "../api/problem";
import { milliseconds } from "./durations";

/** A proxy answered in the server's place. */
const GAVE_UP = "A proxy between this browser and the server timed out. Try again, with a shorter time limit if you set a long one.";

/** What to do in this console about a wait or query that was not answered; null where the server says it best. */
function advice(problem: Problem): string | null {
  const { code, status, body } = problem;
  switch (code) {
    case "freshness_timeout": {
      if (body.beyond_source === true || body.cause !== undefined) return problem.remedy;
      const left = body.estimate_ms;
      const hope = typeof left === "number" && left > 0 ? `At the current rate it will be reached in about ${milliseconds(left)}. ` : "";
      return `${hope}Try again with more time, or see the subscription's page for what delays it.`;
    }
    case "freshness_unreachable":
      return `${problem.remedy} Waiting longer does not help.`;
    case "query_timeout":
      return "Give the query more time, or select less.";
    case "engine_timeout":
      return "The engine may be busy. Try again; if it fails repeatedly, check whether the engine runs.";
    default:
      return problem.remedy === "" && status >= 502 && status <= 504 ? GAVE_UP : null;
  }
}

/** The engine's own refusals of queries have codes, but one title for all. */
const QUERY_TITLES: Record<string, string> = {
  query_not_a_read: "The query was refused",
  query_invalid: "The query is invalid on the target",
  query_timeout: "The query took too long",
  query_too_large: "The answer is too large",
  query_unavailable: "The target is unavailable for queries",
  table_not_live: "A table of the query is not live",
};

/** As a sentence of its own. */
const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** The same problem, with what happened and what can be done about it said in the words of this page. */
export function inPlainWords(error: unknown): Problem {
  const problem = Problem.from(error);
  const remedy = advice(problem) ?? problem.remedy;
  return new Problem({
    ...problem,
    title: QUERY_TITLES[problem.code] ?? problem.title,
    detail: sentence(problem.detail),
    remedy,
    actions: remedy.startsWith(problem.remedy) ? problem.actions : [],
  });
}
