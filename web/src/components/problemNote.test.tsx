import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { Problem } from "../api/problem";
import { ProblemNote } from "./problemNote";

describe("ProblemNote", () => {
  it("shows what happened, the remedy, the findings and the trace", () => {
    const body = {
      title: "The checks failed",
      detail: "Two things are missing.",
      remedy: "Correct them.",
      trace_id: "abc123",
      findings: [
        { code: "later", severity: "info", what: "A note.", remedy: "" },
        { code: "first", severity: "error", what: "No key.", remedy: "Add one.", sql: ["ALTER TABLE t ADD PRIMARY KEY (id);"] },
      ],
    };
    render(<ProblemNote error={Problem.of(new Response(null, { status: 422 }), body)} />);
    const alert = screen.getByRole("alert");
    expect(alert.textContent).toContain("Two things are missing.Correct them.");
    expect(alert.textContent).toContain("In the server's log: abc123");
    expect(screen.getAllByRole("listitem").map((item) => item.textContent?.slice(0, 12))).toEqual(["errorNo key.", "infoA note. "]);
    expect(screen.getByRole("group", { name: "For first" }).textContent).toBe("ALTER TABLE t ADD PRIMARY KEY (id);");
  });

  it("leaves out what the problem lacks", () => {
    render(<ProblemNote error={Problem.of(new Response(null, { status: 500 }), {})} />);
    expect(screen.getByRole("alert").textContent).toBe("The server refused thisIt answered with status 500.");
  });

  it("has words for an error of the console itself", () => {
    render(<ProblemNote error={new TypeError("x is undefined")} />);
    expect(screen.getByRole("alert").textContent).toBe("The console could not do thisx is undefinedLoad the page again.");
  });
});
