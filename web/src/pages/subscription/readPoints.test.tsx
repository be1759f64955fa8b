import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, it, vi } from "vitest";
import type { ReadPoint } from "../../api/readPoints";
import { AskedAction } from "../../components/actions";
import { Announcements } from "../../components/announcements";
import { As } from "../../testing/caller";
import { readPoint, subscription } from "../../testing/samples";
import ReadPoints from "./readPoints";

const request = vi.fn<(request: Request) => Promise<Response>>();

beforeEach(() => {
  request.mockReset().mockImplementation(() => Promise.resolve(Response.json(readPoint({ name: "new" }), { status: 201 })));
  vi.stubGlobal("fetch", request);
});

function show(points: ReadPoint[]): void {
  render(
    <As role="viewer" known={[[["read points", "copy"], points]]}>
      <ReadPoints subscription={subscription()} />
      <AskedAction place="/" />
      <Announcements place="/" />
    </As>,
  );
}

const press = (name: string): Promise<void> => userEvent.click(screen.getByRole("button", { name }));
const fill = async (label: string, text: string): Promise<void> => {
  await userEvent.clear(screen.getByLabelText(label));
  await userEvent.type(screen.getByLabelText(label), text);
};

it("is created with a name, a time to live and the freshness that it needs", async () => {
  show([]);
  expect(screen.getByText("There is none.")).toBeTruthy();
  await fill("Name", "month-end");
  await fill("Kept for", "1.5");
  await userEvent.selectOptions(screen.getByLabelText("Kept for: unit"), "hours");
  await userEvent.click(screen.getByLabelText("everything committed on the source until now"));
  await press("Create");
  expect(await screen.findByText(/month-end: the read point was created at 0\/16B3748\./)).toBeTruthy();
  expect(await request.mock.calls[0]?.[0].clone().json()).toEqual({
    name: "month-end",
    ttl_seconds: 5_400,
    freshness: { mode: "latest", position: null, timeout_ms: 10_000 },
  });
});

it("says with the remedy why the server refuses it", async () => {
  const refusal = {
    code: "read_point_limit",
    title: "There are too many",
    detail: "The engine keeps 4.",
    remedy: "Wait until one expires.",
  };
  request.mockResolvedValueOnce(Response.json(refusal, { status: 409 }));
  show([]);
  await fill("Name", "x");
  await press("Create");
  expect((await screen.findByRole("alert")).textContent).toBe("There are too manyThe engine keeps 4.Wait until one expires.");
});

it("asks for no more than a week", async () => {
  show([]);
  await fill("Name", "x");
  await fill("Kept for", "8");
  await userEvent.selectOptions(screen.getByLabelText("Kept for: unit"), "days");
  await press("Create");
  expect(request).not.toHaveBeenCalled();
});

it("lists them with what ended them, and with tables that were not complete", () => {
  const [complete] = readPoint().tables;
  if (complete === undefined) throw new Error("the sample has a table");
  show([
    readPoint({ tables: [complete, { ...complete, id: "t2", name: "lines", complete: false }] }),
    readPoint({ name: "old", state: "ended", reason: "its time was over" }),
  ]);
  const [held, ended] = screen.getAllByRole("row").slice(1);
  expect(held?.textContent).toContain("held");
  expect(held?.textContent).toContain("1 not complete");
  expect(screen.getByRole("link", { name: "Query at month-end" }).getAttribute("href")).toBe(
    "/freshness?subscription=copy&read_point=month-end",
  );
  expect(ended?.textContent).toContain("its time was over");
  expect(screen.queryByRole("link", { name: "Query at old" })).toBeNull();
});

it("is released after a question, by viewers too", async () => {
  request.mockResolvedValueOnce(new Response(null, { status: 204 }));
  show([readPoint()]);
  await press("Release month-end");
  expect(request).not.toHaveBeenCalled();
  expect(screen.getByText("Queries that read at it end.")).toBeTruthy();
  await press("Release");
  expect(await screen.findByText("month-end: the read point was released.")).toBeTruthy();
  expect([request.mock.calls[0]?.[0].method, new URL(request.mock.calls[0]?.[0].url ?? "").pathname]).toEqual([
    "DELETE",
    "/api/v1/subscriptions/copy/read-points/month-end",
  ]);
});
