import type { UseQueryResult } from "@tanstack/react-query";
import type { Checks } from "../api/client";
import { Findings } from "./findings";
import { ProblemNote } from "./problemNote";
import { StatusBadge } from "./statusBadge";

/** What a check found, or that it is under way. */
export function CheckResult({ query }: { query: UseQueryResult<Checks> }) {
  if (query.isFetching || query.isPending) {
    return (
      <p role="status">
        <StatusBadge tone="busy">Checking …</StatusBadge>
      </p>
    );
  }
  if (query.error !== null) return <ProblemNote error={query.error} />;
  const { ok, findings } = query.data;
  return (
    <div role="status">
      <p>
        {ok ? (
          <StatusBadge tone="good">{findings.length === 0 ? "No problems found." : "No problems found. Notes:"}</StatusBadge>
        ) : (
          <StatusBadge tone="bad">Problems found:</StatusBadge>
        )}
      </p>
      <Findings findings={findings} />
    </div>
  );
}
