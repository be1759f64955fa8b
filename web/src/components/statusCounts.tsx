import { Link } from "wouter";
import type { Filters } from "../filters";
import { count } from "../labels/numbers";
import type { Tone } from "../labels/tone";
import { StatusBadge } from "./statusBadge";

interface StatusCount {
  /** Its value in the address. */
  value: string;
  tone: Tone;
  word: string;
  number: number;
}

interface StatusCountsProps {
  /** What is counted, in the plural. */
  noun: string;
  /** Name of the filter in the address. */
  filter: string;
  filters: Filters;
  items: StatusCount[];
  total: number;
}

/** The number of items with each status. Each is a link that filters by it, the first one shows all; a status without items is left out. */
export function StatusCounts({ noun, filter, filters, items, total }: StatusCountsProps) {
  const chosen = filters.get(filter);
  const shown = items.filter((item) => item.number > 0 || item.value === chosen);
  const link = (value: string | null): string => filters.address({ [filter]: value, page: null });
  return (
    <nav className="status-counts" aria-label={`Which ${noun} are shown`}>
      <Link href={link(null)} aria-current={chosen === "" ? "true" : undefined} replace>
        <b>{count(total)}</b> <span>all</span>
      </Link>
      {shown.map((item) => (
        <Link key={item.value} href={link(item.value)} aria-current={chosen === item.value ? "true" : undefined} replace>
          <b>{count(item.number)}</b> <StatusBadge tone={item.tone}>{item.word}</StatusBadge>
        </Link>
      ))}
    </nav>
  );
}
