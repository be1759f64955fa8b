import { count } from "../labels/numbers";

interface PagerProps {
  /** From 0. */
  page: number;
  size: number;
  total: number;
  noun: string;
  onPage: (page: number) => void;
}

/** Which of a list's items are shown, and the way to the others. */
export function Pager({ page, size, total, noun, onPage }: PagerProps) {
  const last = Math.max(0, Math.ceil(total / size) - 1);
  if (last === 0) return null;
  const from = page * size + 1;
  return (
    <nav className="pager" aria-label={`Pages of ${noun}`}>
      <button type="button" disabled={page === 0} onClick={() => onPage(page - 1)}>
        Previous
      </button>
      <span role="status">
        {count(from)} to {count(Math.min(from + size - 1, total))} of {count(total)} {noun}
      </span>
      <button type="button" disabled={page >= last} onClick={() => onPage(page + 1)}>
        Next
      </button>
    </nav>
  );
}
