import type { Filters } from "../filters";

interface SearchFieldProps {
  label: string;
  filters: Filters;
  /** How many are shown of how many, in words. */
  result: string;
}

/** Finds by a part of a name while it is typed; the text is kept in the address as `q`. */
export function SearchField({ label, filters, result }: SearchFieldProps) {
  return (
    <div className="search" role="search">
      <label>
        <span>{label}</span>
        <input
          type="search"
          value={filters.get("q")}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => filters.set({ q: event.target.value, page: null })}
        />
      </label>
      <span className="soft" role="status">
        {result}
      </span>
    </div>
  );
}
