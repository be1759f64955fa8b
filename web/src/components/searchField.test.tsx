import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { matches, useFilters } from "../filters";
import { OlderNewer } from "./olderNewer";
import { SearchField } from "./searchField";

function Search() {
  return <SearchField label="Find by name" filters={useFilters()} result="1 of 9 tables" />;
}
function Pages({ next }: { next: string | null }) {
  return <OlderNewer filters={useFilters()} next={next} noun="events" />;
}
const at = (address: string): void => history.replaceState(null, "", address);
const links = (): [string | null, string | null][] =>
  screen.queryAllByRole("link").map((link) => [link.textContent, link.getAttribute("href")]);

describe("SearchField", () => {
  it("keeps what is typed in the address, and begins with the first page", async () => {
    at("/tables?page=4");
    render(<Search />);
    await userEvent.type(screen.getByRole("searchbox", { name: "Find by name" }), "or d");
    expect(location.search).toBe("?q=or+d");
  });

  it("shows what the address has, and how much is found", () => {
    at("/tables?q=ord");
    render(<Search />);
    expect(screen.getByRole<HTMLInputElement>("searchbox").value).toBe("ord");
    expect(screen.getByRole("status").textContent).toBe("1 of 9 tables");
  });

  it("leaves no trace of a search that is emptied", async () => {
    at("/tables?q=o");
    render(<Search />);
    await userEvent.clear(screen.getByRole("searchbox"));
    expect(location.pathname + location.search).toBe("/tables");
  });
});

describe("matches", () => {
  it.each([
    ["", true],
    ["  ", true],
    ["ORD", true],
    [" mart ", true],
    ["other", false],
  ])("“%s”: %s", (typed, found) => expect(matches(typed, "orders", "Mart")).toBe(found));
});

describe("OlderNewer", () => {
  it("is not there for a single page", () => {
    at("/events");
    render(<Pages next={null} />);
    expect(links()).toEqual([]);
  });

  it("leads to older items, and keeps the other filters", () => {
    at("/events?severity=error");
    render(<Pages next="t2" />);
    expect(links()).toEqual([["Older events", "/events?severity=error&from=t2"]]);
  });

  it("leads back to the newest", () => {
    at("/events?from=t2");
    render(<Pages next={null} />);
    expect(links()).toEqual([["Newest events", "/events"]]);
  });
});
