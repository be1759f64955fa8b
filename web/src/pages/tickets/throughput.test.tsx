import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { ThroughputFacts } from "./throughput";

const figures = {
  since: "tk1",
  seconds: 99,
  log_bytes: 4 * 1024 ** 3,
  transactions: 990,
  commands: 3960,
  log_gib_per_hour: 145.4,
  commands_per_second: 40,
  transactions_per_second: 10,
};

it("shows the volume of log between two tickets", () => {
  render(<ThroughputFacts figures={figures} />);
  expect(screen.getByText(/145 GiB\/h/)).toBeTruthy();
  expect(screen.getByText(/Log that is not replicated/)).toBeTruthy();
});

it("shows no log where positions of the source do not count bytes", () => {
  const { container } = render(<ThroughputFacts figures={{ ...figures, log_bytes: null, log_gib_per_hour: null }} />);
  expect(container.textContent).not.toContain("Log");
  expect(screen.getByText(/3,960 in all/)).toBeTruthy();
});
