import { useLocation, useSearch } from "wouter";

type Changes = Record<string, string | number | null>;

/** The filters of a page. They are kept in the address, so that a view can be shared and bookmarked. */
export interface Filters {
  /** Empty where nothing is set. */
  get: (name: string) => string;
  /** The address with some of them changed; null and "" take one away. */
  address: (changes: Changes) => string;
  /** Changes them in place of the present address. */
  set: (changes: Changes) => void;
}

export function useFilters(): Filters {
  const [path, navigate] = useLocation();
  const present = new URLSearchParams(useSearch());
  const address = (changes: Changes): string => {
    const search = new URLSearchParams(present);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") search.delete(name);
      else search.set(name, String(value));
    }
    const text = search.toString();
    return text === "" ? path : `${path}?${text}`;
  };
  return {
    get: (name) => present.get(name) ?? "",
    address,
    set: (changes) => navigate(address(changes), { replace: true }),
  };
}

/** Whether one of `texts` holds what was typed, whatever the case. */
export function matches(typed: string, ...texts: string[]): boolean {
  const wanted = typed.trim().toLowerCase();
  return wanted === "" || texts.some((text) => text.toLowerCase().includes(wanted));
}
