import type { UseQueryResult } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { Problem } from "../api/problem";
import { QueryBoundary } from "./queryBoundary";

const problem = (status: number): Problem => Problem.of(new Response(null, { status }), { title: `Refused with ${status}` });
const show = (data: string | undefined, error: Error | null) =>
  render(<QueryBoundary query={{ data, error } as UseQueryResult<string>}>{(found) => <p>found {found}</p>}</QueryBoundary>);

describe("QueryBoundary", () => {
  it("says that it loads until there is data", () => {
    show(undefined, null);
    expect(screen.getByRole("status").textContent).toBe("Loading …");
  });

  it("shows the data", () => {
    show("it", null);
    expect(screen.getByText("found it")).toBeTruthy();
    expect(screen.queryByRole("status")).toBeNull();
  });

  it("shows why there is no data", () => {
    show(undefined, problem(500));
    expect(screen.getByRole("alert").textContent).toContain("Refused with 500");
    expect(screen.queryByText(/found/)).toBeNull();
  });

  it("keeps earlier data when a later read fails", () => {
    show("it", problem(500));
    expect(screen.getByText("found it")).toBeTruthy();
    expect(screen.queryByRole("alert")).toBeNull();
  });

  it("says that what is shown is gone", () => {
    show("it", problem(404));
    expect(screen.getByText("found it")).toBeTruthy();
    expect(screen.getByRole("alert").textContent).toContain("Refused with 404");
  });

  it("takes empty data for data", () => {
    show("", null);
    expect(screen.getByText("found")).toBeTruthy();
  });
});
