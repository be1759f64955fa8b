import { Link } from "wouter";
import type { Filters } from "../filters";

/** The ways through a list that is read page by page, the newest first; the page is kept in the address as `from`. */
export function OlderNewer({ filters, next, noun }: { filters: Filters; next: string | null | undefined; noun: string }) {
  const first = filters.get("from") === "";
  if (first && next == null) return null;
  return (
    <nav className="pager" aria-label={`Pages of ${noun}`}>
      {!first && <Link href={filters.address({ from: null })}>Newest {noun}</Link>}
      {next != null && <Link href={filters.address({ from: next })}>Older {noun}</Link>}
    </nav>
  );
}
