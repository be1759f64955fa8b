import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ProblemNote } from "./problemNote";

/** What a query brought. What it brought before stays in sight when a later reading fails; the header's mark tells of that. */
export function QueryBoundary<Data>({ query, children }: { query: UseQueryResult<Data>; children: (data: Data) => ReactNode }) {
  if (query.data !== undefined) {
    const gone = query.error !== null && "status" in query.error && query.error.status === 404;
    return (
      <>
        {gone && <ProblemNote error={query.error} />}
        {children(query.data)}
      </>
    );
  }
  if (query.error !== null) return <ProblemNote error={query.error} />;
  return (
    <p className="soft" role="status">
      Loading …
    </p>
  );
}
