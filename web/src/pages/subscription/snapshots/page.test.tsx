import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, it, vi } from "vitest";
import { keys } from "../../../api/queries";
import type { Snapshot, SnapshotScheduleView } from "../../../api/snapshots";
import { AskedAction } from "../../../components/actions";
import { Announcements } from "../../../components/announcements";
import { As } from "../../../testing/caller";
import { later, snapshot, snapshotSchedule, subscription, table } from "../../../testing/samples";
import Snapshots from "./page";

const request = vi.fn<(request: Request) => Promise<Response>>();
const press = (name: string): Promise<void> => userEvent.click(screen.getByRole("button", { name }));
const sent = (at = 0): Request => request.mock.calls[at]?.[0].clone() ?? new Request("http://none");
const call = (at = 0): string => `${sent(at).method} ${new URL(sent(at).url).pathname}`;

beforeEach(() => {
  request.mockReset().mockImplementation(() => Promise.resolve(Response.json(snapshot({ state: "queued" }), { status: 202 })));
  vi.stubGlobal("fetch", request);
});

interface Shown {
  snapshots?: Snapshot[];
  schedule?: SnapshotScheduleView | null;
  role?: string;
}

function show({ snapshots = [], schedule = null, role = "operator" }: Shown): void {
  const of = keys.ofSubscription("copy");
  const known: [readonly unknown[], unknown][] = [
    [[...of, "snapshots", ""], { items: snapshots, next_page_token: null }],
    [[...of, "snapshot schedule"], schedule],
    [
      [...of, "tables", "present"],
      [table(), table({ id: "t2", name: "lines" })],
    ],
  ];
  render(
    <As role={role} known={known}>
      <Snapshots subscription={subscription()} />
      <AskedAction place="/" />
      <Announcements place="/" />
    </As>,
  );
}

it("is requested with its format, its tables and the freshness of its rows", async () => {
  show({});
  await userEvent.click(screen.getByLabelText("DuckDB: one file with all tables"));
  expect(screen.getByText("latest-duckdb")).toBeTruthy();
  await userEvent.click(screen.getByLabelText("those that I name"));
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Take a snapshot" }).disabled).toBe(true);
  await userEvent.click(screen.getByLabelText("public.lines"));
  await userEvent.click(screen.getByLabelText("Leave out tables that are not live, instead of failing"));
  await userEvent.click(screen.getByLabelText("everything up to a position"));
  await userEvent.type(screen.getByLabelText("Position"), "0/55 ");
  await press("Take a snapshot");
  expect(await screen.findByText("copy: a snapshot was requested.")).toBeTruthy();
  expect(call()).toBe("POST /api/v1/subscriptions/copy/snapshots");
  expect(await sent().json()).toEqual({
    format: "duckdb",
    tables: [{ schema: "public", name: "lines" }],
    on_unavailable: "leave_out",
    limit_seconds: 3_600,
    freshness: { mode: "position", position: "0/55", timeout_ms: 10_000 },
    latest: true,
  });
});

it("says with the remedy why the server refuses it", async () => {
  const refusal = {
    code: "snapshot_running",
    title: "A snapshot is being written",
    detail: "It is running.",
    remedy: "Wait until it has ended.",
  };
  request.mockResolvedValueOnce(Response.json(refusal, { status: 409 }));
  show({});
  await press("Take a snapshot");
  expect((await screen.findByRole("alert")).textContent).toBe("A snapshot is being writtenIt is running.Wait until it has ended.");
});

it("is listed with position, state, size and files", () => {
  const left_out = [{ id: "t3", schema: "public", name: "notes", state: "parked", reason: "A value does not fit." }];
  const problem = { detail: "The disk is full.", remedy: "Free space." };
  show({
    snapshots: [
      snapshot({ id: "n2", state: "running", position: null, commit_time: null, folder: null, bytes: null, tables: [], ended_at: null }),
      snapshot({ left_out, scheduled: true }),
      snapshot({ id: "n3", state: "failed", position: null, commit_time: null, folder: null, bytes: null, tables: [], problem }),
    ],
  });
  const [running, complete, failed] = screen.getAllByRole("row").slice(1);
  if (running === undefined || complete === undefined || failed === undefined) throw new Error("three rows");
  expect(within(running).getByText("being written")).toBeTruthy();
  expect(within(complete).getByText("complete")).toBeTruthy();
  expect(complete.textContent).toMatch(
    /by the schedule.*0\/16B3748.*Parquet, 1 table.*public\.orders\.parquet, 10 rows.*1 left out.*2.KiB/,
  );
  expect(within(complete).getByText("/data/snapshots/copy/0-16B3748")).toBeTruthy();
  expect(failed.textContent).toContain("The disk is full.Free space.");
});

it("is deleted after a question", async () => {
  request.mockResolvedValueOnce(new Response(null, { status: 204 }));
  show({ snapshots: [snapshot()] });
  await press("Delete the snapshot 0-16B3748");
  expect(request).not.toHaveBeenCalled();
  await press("Delete");
  expect(await screen.findByText("copy: deleting the snapshot 0-16B3748 was requested.")).toBeTruthy();
  expect(call()).toBe("DELETE /api/v1/subscriptions/copy/snapshots/n1");
});

it("is cancelled while it is written, and offers nothing while it is deleted", () => {
  show({ snapshots: [snapshot({ state: "running", ended_at: null }), snapshot({ id: "n2", deleting: true })] });
  expect(screen.getByRole("button", { name: "Cancel the snapshot that is being written" })).toBeTruthy();
  expect(screen.getByText("being deleted")).toBeTruthy();
  expect(screen.queryByRole("button", { name: /^Delete/ })).toBeNull();
});

it("is offered for deletion again where that failed, with the reason", () => {
  show({ snapshots: [snapshot({ deleting: true, problem: { detail: "Permission denied.", remedy: "Correct it." } })] });
  expect(screen.getByText("not deleted yet")).toBeTruthy();
  expect(screen.getByText("Permission denied.")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Delete the snapshot 0-16B3748" })).toBeTruthy();
});

it("can be taken by a schedule, which keeps the newest", async () => {
  request.mockResolvedValueOnce(Response.json(snapshotSchedule(), { status: 201 }));
  show({});
  await press("Set a schedule");
  const form = within(screen.getByRole("form", { name: "Schedule" }));
  await userEvent.clear(form.getByLabelText("Taken every"));
  await userEvent.type(form.getByLabelText("Taken every"), "30");
  await userEvent.selectOptions(form.getByLabelText("Taken every: unit"), "minutes");
  await userEvent.clear(form.getByLabelText("Kept"));
  await userEvent.type(form.getByLabelText("Kept"), "3");
  await userEvent.click(form.getByRole("button", { name: "Save" }));
  expect(await screen.findByText("copy: the schedule of snapshots was stored.")).toBeTruthy();
  expect(call()).toBe("PUT /api/v1/subscriptions/copy/snapshot-schedule");
  expect(await sent().json()).toEqual({
    format: "parquet",
    tables: null,
    on_unavailable: "error",
    limit_seconds: 3_600,
    interval_seconds: 1_800,
    keep: 3,
  });
  expect(screen.queryByRole("form", { name: "Schedule" })).toBeNull();
});

it("is changed with all that it had, also a table that is not replicated any more", async () => {
  const tables = [
    { schema: "public", name: "orders" },
    { schema: "public", name: "gone" },
  ];
  show({ schedule: snapshotSchedule({ tables, next_at: later(60) }) });
  expect(screen.getByText("90 minutes")).toBeTruthy();
  expect(screen.getByText("the newest 12")).toBeTruthy();
  await press("Change the schedule");
  const form = within(screen.getByRole("form", { name: "Schedule" }));
  await userEvent.click(form.getByLabelText("public.gone not replicated"));
  request.mockResolvedValueOnce(Response.json({ code: "x", title: "No", detail: "Refused.", remedy: "Mend it." }, { status: 422 }));
  await userEvent.click(form.getByRole("button", { name: "Save" }));
  expect((await form.findByRole("alert")).textContent).toBe("NoRefused.Mend it.");
  expect(await sent().json()).toEqual({
    format: "duckdb",
    tables: [{ schema: "public", name: "orders" }],
    on_unavailable: "leave_out",
    limit_seconds: 600,
    interval_seconds: 5_400,
    keep: 12,
  });
});

it("is removed after a question", async () => {
  request.mockResolvedValueOnce(new Response(null, { status: 204 }));
  show({ schedule: snapshotSchedule() });
  await press("Remove the schedule of copy");
  await press("Remove");
  expect(await screen.findByText("copy: the schedule of snapshots was removed.")).toBeTruthy();
  expect(call()).toBe("DELETE /api/v1/subscriptions/copy/snapshot-schedule");
});

it("offers a viewer nothing to take, to change or to delete", () => {
  show({ snapshots: [snapshot()], schedule: snapshotSchedule(), role: "viewer" });
  expect(screen.getByText(/Snapshots require an operator's token/)).toBeTruthy();
  expect(screen.queryAllByRole("button")).toEqual([]);
});
