import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import type { Table } from "../api/client";
import { comparison, later, table } from "../testing/samples";
import { TableVerified } from "./tableVerified";

function shown(changes: Partial<Table>): string {
  const { container } = render(<TableVerified subscription="copy" table={table(changes)} />);
  return (container.textContent ?? "").replaceAll("\u00a0", " ");
}

describe("TableVerified", () => {
  it("says up to where, when and how it was verified", () => {
    const text = shown({ verified: comparison() });
    for (const part of ["verified", "Verified up to position", "0/16B3748", "by rows", "1,000"]) expect(text).toContain(part);
    expect(screen.getByRole("link", { name: "Verifications" }).getAttribute("href")).toBe("/subscriptions/copy/verifications");
  });

  it("warns of a difference, an old comparison and a copy since", () => {
    expect(shown({ verified: comparison({ equal: false, target_rows: 998 }) })).toContain("1,000 rows on the source, 998 on the target");
    expect(shown({ verified: comparison({ overdue: true }) })).toContain("overdue");
    const sampled = shown({ verified: comparison({ sample: 0.01 }) });
    for (const part of ["a sample is equal", "Compared at position", "a sample of", "Compared as a wholenever"])
      expect(sampled).toContain(part);
    expect(shown({ verified: comparison({ before_copy: true }) })).toContain("copied after the comparison");
    expect(document.querySelectorAll(".tone-warn, .tone-bad").length).toBe(3);
  });

  it("says why it could not be compared", () => {
    const problem = {
      at: later(0),
      code: "source_timeout",
      detail: "Open transactions.",
      remedy: "End them.",
      attempts: 2,
      retry_at: later(60),
    };
    const text = shown({ verified: null, verification_problem: problem });
    for (const part of ["not compared with the source yet", "2 times so far: Open transactions.", "End them."])
      expect(text).toContain(part);
  });
});
