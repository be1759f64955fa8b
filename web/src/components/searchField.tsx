import type { ReactNode } from "react";
import type { Filters } from "../filters";

interface SearchBoxProps {
  label: string;
  value: string;
  /** How many are shown of how many, in words. */
  result: string;
  onChange: (value: string) => void;
  /** What can be done with those that are shown. */
  children?: ReactNode;
}

/** Finds by a part of a name while it is typed. */
export const SearchBox = ({ label, value, result, onChange, children }: SearchBoxProps) => (
  <div className="search" role="search">
    <label>
      <span>{label}</span>
      <input type="search" value={value} autoComplete="off" spellCheck={false} onChange={(event) => onChange(event.target.value)} />
    </label>
    <span className="soft" role="status">
      {result}
    </span>
    {children}
  </div>
);

interface SearchFieldProps {
  label: string;
  filters: Filters;
  /** How many are shown of how many, in words. */
  result: string;
}

/** A search whose text is kept in the address as `q`. */
export const SearchField = ({ label, filters, result }: SearchFieldProps) => (
  <SearchBox label={label} value={filters.get("q")} result={result} onChange={(q) => filters.set({ q, page: null })} />
);
