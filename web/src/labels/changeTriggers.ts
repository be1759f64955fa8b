import type { PlannedStatement } from "../api/client";

const VARIANTS: Readonly<Record<string, string>> = {
  json: "whole rows, as JSON",
  exact: "whole rows, as JSON and as text",
  "json audit": "whole rows, as JSON, with user and application",
  "exact audit": "whole rows, as JSON and as text, with user and application",
  rows: "whole rows",
  inserts: "inserts only: the table has no key",
};

/** How triggers record the rows of a table; of a newer server, as it says it. */
export const variantWords = (variant: string): string => VARIANTS[variant] ?? variant;

/** The statements of a plan as a script, with locks and costs as comments where they differ from those before. */
export function asScript(statements: readonly PlannedStatement[]): string[] {
  return statements.map(({ sql, lock, cost }, at) => {
    const before = statements[at - 1];
    const said = [...(lock === before?.lock ? [] : [`-- locks: ${lock}`]), ...(cost === before?.cost ? [] : [`-- cost: ${cost}`])];
    return [...said, sql].join("\n");
  });
}
