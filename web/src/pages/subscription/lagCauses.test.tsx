import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { lagExplanationQuery } from "../../api/queries";
import type { LagExplanation } from "../../labels/lagCauses";
import { As } from "../../testing/caller";
import LagCauses from "./lagCauses";

const LOCK: LagExplanation["causes"][number] = {
  cause: "target_lock",
  share_ms: 30_000,
  share: 0.75,
  explanation: "Another session of the target holds a lock.",
  evidence: { pid: 4711 },
  remedy: "End the session on the target that holds the lock.",
};
const COPY: LagExplanation["causes"][number] = { ...LOCK, cause: "copy_running", share_ms: 10_000, share: 0.25, evidence: {} };

async function show(explanation: LagExplanation): Promise<void> {
  render(
    <As role="viewer" known={[[lagExplanationQuery("copy").queryKey, explanation]]}>
      <LagCauses subscription="copy" />
    </As>,
  );
  expect(screen.queryByText("Measure again")).toBeNull();
  await userEvent.click(screen.getByText("Explain the lag"));
  await screen.findByText("Measure again");
}

it("lists the causes with their shares, evidence and remedies", async () => {
  await show({ lag_ms: 40_000, commit_lag_ms: 39_000, causes: [LOCK, COPY] });
  expect(screen.getByText(/^The oldest change that readers do not see is 40\s*s old\.$/)).toBeTruthy();
  const [first, second] = ["lock on the target", "copy of a table"].map((words) => screen.getByText(words).closest("tr"));
  expect(first?.textContent).toMatch(/^lock on the target75\s*%30\s*s/);
  expect(first?.textContent).toContain("pid: 4711");
  expect(first?.textContent).toContain("End the session on the target that holds the lock.");
  expect(second?.textContent).toContain("10\u00a0s");
});

it("says that nothing lags", async () => {
  await show({ lag_ms: 0, commit_lag_ms: 0, causes: [] });
  expect(screen.getByText("Nothing lags.")).toBeTruthy();
  expect(screen.queryByRole("table")).toBeNull();
});
