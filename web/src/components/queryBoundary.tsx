import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ProblemNote } from "./problemNote";

/** The data of a query, once it is there. Data of an earlier read stays visible when a later one fails; the header shows that the stream is down. */
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
