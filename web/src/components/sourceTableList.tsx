import { type ReactNode, useState } from "react";
import type { SourceTable } from "../api/client";
import { matches } from "../filters";
import { bytes, count, some } from "../labels/numbers";
import { qualified } from "../labels/tables";
import { Pager } from "./pager";
import { SearchBox } from "./searchField";

const PAGE = 50;

interface SourceTableListProps {
  /** In the order in which they are listed. */
  tables: SourceTable[];
  /** What each table's row begins with, below the heading "Table". */
  first: (table: SourceTable) => ReactNode;
  /** The headings of the columns that follow the sizes. */
  headings: ReactNode[];
  /** Their cells. */
  rest: (table: SourceTable) => ReactNode;
  /** Buttons in the search; `shown`: the tables that are found. */
  buttons?: (shown: SourceTable[], searched: boolean) => ReactNode;
  /** What is shown between the search and the tables. */
  above?: (shown: SourceTable[]) => ReactNode;
}

/** The tables of a source, found by name and listed page by page with their sizes. */
export function SourceTableList({ tables, first, headings, rest, buttons, above }: SourceTableListProps) {
  const [typed, setTyped] = useState("");
  const [page, setPage] = useState(0);
  if (tables.length === 0) return <p className="prose">The source has no table outside its system's schemas that its user can see.</p>;
  const shown = tables.filter((table) => matches(typed, qualified(table)));
  const search = (text: string): void => {
    setTyped(text);
    setPage(0);
  };
  return (
    <>
      <SearchBox
        label="Find by schema or name"
        value={typed}
        result={`${count(shown.length)} of ${some(tables.length, "table")}`}
        onChange={search}
      >
        {buttons?.(shown, typed !== "")}
      </SearchBox>
      {above?.(shown)}
      <table className="ledger tables-to-choose">
        <caption className="unseen">Tables of the source</caption>
        <thead>
          <tr>
            <th scope="col">Table</th>
            <th scope="col" className="number">
              Rows, about
            </th>
            <th scope="col" className="number">
              Size
            </th>
            {headings.map((heading, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a column is its place.
              <th key={at} scope="col">
                {heading}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.slice(page * PAGE, (page + 1) * PAGE).map((table) => (
            <tr key={JSON.stringify([table.schema, table.name])}>
              <th scope="row" data-column="Table">
                {first(table)}
              </th>
              <td data-column="Rows, about" className="number">
                {count(table.rows_estimate)}
              </td>
              <td data-column="Size" className="number">
                {bytes(table.bytes)}
              </td>
              {rest(table)}
            </tr>
          ))}
        </tbody>
      </table>
      <Pager page={page} size={PAGE} total={shown.length} noun="tables" onPage={setPage} />
    </>
  );
}
