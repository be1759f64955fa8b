import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keys } from "../api/queries";
import { session } from "../session";
import { StreamOfTest } from "../testing/stream";
import type { StreamMessage } from "./eventStream";
import { queriesInvalidatedBy, useEventStream } from "./invalidation";
import { queryClient } from "./queryClient";

const message = (event: string, body: unknown): StreamMessage => ({ event, data: JSON.stringify(body), id: null });

describe("queriesInvalidatedBy", () => {
  const copy = keys.ofSubscription("copy");
  it.each([
    ["a change of a subscription", message("changed", { subscription: "copy" }), [keys.subscriptions, copy, keys.readiness]],
    ["a change without a subscription", message("changed", {}), [keys.readiness]],
    [
      "an event of a subscription",
      message("event", { subscription: "copy", kind: "table_parked" }),
      [keys.subscriptions, copy, keys.events],
    ],
    ["an event of a connection", message("event", { kind: "connection_changed" }), [keys.events, keys.connections]],
    ["an event of an engine", message("event", { kind: "engine_lost" }), [keys.events, keys.readiness, keys.subscriptions]],
    ["an event without a kind", message("event", {}), [keys.events]],
    ["an unknown message about a subscription", message("measured", { subscription: "copy" }), [keys.subscriptions, copy]],
    ["an unknown message", message("weather", { kind: "rain" }), []],
    ["a subscription that is no text", message("changed", { subscription: 5 }), [keys.readiness]],
    ["a message that is no JSON", { event: "changed", data: "{", id: null }, []],
  ])("of %s", (_case, found, invalidated) => expect(queriesInvalidatedBy(found)).toEqual(invalidated));

  it("covers all queries of a subscription", () => {
    const [, key] = queriesInvalidatedBy(message("changed", { subscription: "copy" }));
    queryClient.setQueryData([...keys.ofSubscription("copy"), "table", "t1"], {});
    queryClient.setQueryData([...keys.ofSubscription("other"), "table", "t1"], {});
    expect(
      queryClient
        .getQueryCache()
        .findAll({ queryKey: key ?? [] })
        .map(({ queryKey }) => queryKey[1]),
    ).toEqual(["copy"]);
  });
});

describe("useEventStream", () => {
  const request = vi.fn<(address: string, init: RequestInit) => Promise<Response>>();
  let stream: StreamOfTest;
  let invalidate = vi.spyOn(queryClient, "invalidateQueries");
  const invalidated = (): unknown[] => invalidate.mock.calls.map(([filters]) => filters?.queryKey);
  const signIn = (token: string | null, refused = false): void => act(() => session.set({ token, refused, wrong: false }));
  const advance = (ms: number): Promise<void> => act(async () => void (await vi.advanceTimersByTimeAsync(ms)));
  const send = async (event: string, body: unknown): Promise<void> => {
    stream.write(`event: ${event}\ndata: ${JSON.stringify(body)}\n\n`);
    await advance(0);
  };

  /** Has the stream open, with nothing invalidated since. */
  const open = async (): Promise<void> => {
    renderHook(useEventStream);
    await advance(0);
    invalidate.mockClear();
  };

  beforeEach(() => {
    vi.useFakeTimers();
    stream = new StreamOfTest();
    request.mockReset().mockImplementation(() => Promise.resolve(stream.response));
    vi.stubGlobal("fetch", request);
    invalidate = vi.spyOn(queryClient, "invalidateQueries").mockResolvedValue(undefined);
    session.set({ token: null, refused: false, wrong: false });
  });
  afterEach(() => vi.useRealTimers());

  it("reads everything again when the stream is opened", async () => {
    renderHook(useEventStream);
    expect(invalidated()).toEqual([]);
    await advance(0);
    expect(invalidated()).toEqual([undefined]);
  });

  it("gathers messages for a second, and reads each query once", async () => {
    await open();
    for (let repeat = 0; repeat < 4; repeat += 1) await send("changed", { subscription: "copy" });
    await advance(999);
    expect(invalidated()).toEqual([]);
    await advance(1);
    expect(invalidated()).toEqual([keys.subscriptions, keys.ofSubscription("copy"), keys.readiness]);
  });

  it("does not begin again before a slow server has answered", async () => {
    let answered = (): void => undefined;
    await open();
    invalidate.mockReturnValueOnce(
      new Promise((resolve) => {
        answered = resolve;
      }),
    );
    await send("changed", {});
    await advance(1_000);
    await send("event", {});
    await advance(5_000);
    expect(invalidated()).toEqual([keys.readiness]);
    answered();
    await advance(1_000);
    expect(invalidated()).toEqual([keys.readiness, keys.events]);
  });

  it("waits while the tab is hidden", async () => {
    const hidden = vi.spyOn(document, "hidden", "get").mockReturnValue(true);
    await open();
    await send("changed", {});
    await advance(5_000);
    expect(invalidated()).toEqual([]);
    hidden.mockReturnValue(false);
    document.dispatchEvent(new Event("visibilitychange"));
    await advance(0);
    expect(invalidated()).toEqual([keys.readiness]);
  });

  it("opens another stream for another token, and none while the token is refused", async () => {
    await open();
    const signal = (call: number) => request.mock.calls[call]?.[1].signal;
    stream = new StreamOfTest();
    signIn("new");
    await advance(0);
    expect(signal(0)?.aborted).toBe(true);
    expect(request.mock.calls[1]?.[1].headers).toEqual({ Authorization: "Bearer new" });
    signIn(null, true);
    await advance(60_000);
    expect(signal(1)?.aborted).toBe(true);
    expect(request).toHaveBeenCalledTimes(2);
  });
});
