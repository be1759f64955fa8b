import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { sourceTable } from "../testing/samples";
import { SourceTableList } from "./sourceTableList";

const TABLES = Array.from({ length: 60 }, (_, number) => sourceTable({ name: `t${number}`, schema: number < 55 ? "public" : "other" }));
const names = (): (string | null)[] => screen.getAllByRole("rowheader").map(({ textContent }) => textContent);

function show(tables = TABLES, onPress = vi.fn()): typeof onPress {
  render(
    <SourceTableList
      tables={tables}
      first={({ name }) => name}
      headings={["Key"]}
      rest={({ key }) => <td>{key.join()}</td>}
      buttons={(shown, searched) => (
        <button type="button" onClick={() => onPress(shown.length)}>
          {searched ? "those shown" : "all"}
        </button>
      )}
      above={(shown) => shown.length === 5 && <p>five</p>}
    />,
  );
  return onPress;
}

it("lists tables page by page, with their sizes and the columns that it is given", async () => {
  show();
  expect(names()).toHaveLength(50);
  expect(screen.getAllByRole("columnheader").map(({ textContent }) => textContent)).toEqual(["Table", "Rows, about", "Size", "Key"]);
  expect(screen.getAllByRole("row")[1]?.textContent).toBe("t011\u00a0Bid");
  await userEvent.click(screen.getByRole("button", { name: "Next" }));
  expect(names()).toEqual(TABLES.slice(50).map(({ name }) => name));
});

it("finds by schema or name, from the first page, and acts on those that are found", async () => {
  const onPress = show();
  await userEvent.click(screen.getByRole("button", { name: "Next" }));
  await userEvent.type(screen.getByRole("searchbox", { name: "Find by schema or name" }), "OTHER");
  expect(names()).toEqual(["t55", "t56", "t57", "t58", "t59"]);
  expect(screen.getByRole("status").textContent).toBe("5 of 60 tables");
  expect(screen.getByText("five")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "those shown" }));
  expect(onPress).toHaveBeenCalledWith(5);
});

it("says where the source has none", () => {
  show([]);
  expect(screen.getByText(/The source has no table/)).toBeTruthy();
  expect(screen.queryByRole("searchbox")).toBeNull();
});
