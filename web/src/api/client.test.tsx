import { beforeEach, describe, expect, it, vi } from "vitest";
import { now } from "../clock";
import { session, signIn } from "../session";
import { answer, client, everyItem } from "./client";
import { runQuery, waitFor } from "./freshness";
import { Problem } from "./problem";
import { readinessQuery } from "./queries";

const request = vi.fn<(request: Request) => Promise<Response>>();
const json = (body: unknown, init: ResponseInit = {}): Response =>
  new Response(JSON.stringify(body), { ...init, headers: { "Content-Type": "application/json", ...init.headers } });
const sent = (call = 0): Request => request.mock.calls[call]?.[0] as Request;
const { signal } = new AbortController();

beforeEach(() => {
  request.mockReset();
  vi.stubGlobal("fetch", request);
  session.set({ token: null, refused: false, wrong: false });
});

const read = () => answer(client.GET("/api/v1/caller"));

describe("answer", () => {
  it("returns the body of a good answer", async () => {
    request.mockResolvedValueOnce(json({ role: "viewer" }));
    await expect(read()).resolves.toEqual({ role: "viewer" });
  });

  it("throws what the server refused as a Problem", async () => {
    request.mockResolvedValueOnce(json({ code: "not_allowed", title: "Not allowed", detail: "No." }, { status: 403 }));
    await expect(read()).rejects.toMatchObject({ status: 403, code: "not_allowed", title: "Not allowed" });
  });

  it("throws a Problem for an answer that is no JSON", async () => {
    request.mockResolvedValueOnce(new Response("<html>Bad gateway</html>", { status: 502 }));
    await expect(read()).rejects.toMatchObject({ status: 502, code: "http_502" });
  });

  it("throws a Problem where there is no answer", async () => {
    request.mockRejectedValueOnce(new TypeError("Failed to fetch"));
    await expect(read()).rejects.toMatchObject({ status: 0, code: "unreachable" });
  });

  it("leaves the abort of a request as it is", async () => {
    const aborted = new DOMException("Aborted", "AbortError");
    request.mockRejectedValueOnce(aborted);
    await expect(read()).rejects.toBe(aborted);
  });
});

describe("client", () => {
  it("sends the token of the session", async () => {
    signIn("secret");
    request.mockResolvedValueOnce(json({}));
    await read();
    expect(sent().headers.get("Authorization")).toBe("Bearer secret");
  });

  it("sends no token where there is none", async () => {
    request.mockResolvedValueOnce(json({}));
    await read();
    expect(sent().headers.has("Authorization")).toBe(false);
  });

  it("ends the session when its token is refused", async () => {
    signIn("old");
    request.mockResolvedValueOnce(json({}, { status: 401 }));
    await expect(read()).rejects.toBeInstanceOf(Problem);
    expect(session.get()).toEqual({ token: null, refused: true, wrong: true });
  });

  it("keeps a session that began while an earlier token was refused", async () => {
    signIn("old");
    request.mockImplementationOnce(() => {
      signIn("new");
      return Promise.resolve(json({}, { status: 401 }));
    });
    await expect(read()).rejects.toBeInstanceOf(Problem);
    expect(session.get()).toMatchObject({ token: "new", refused: false });
  });

  it("follows the server's clock", async () => {
    request.mockResolvedValueOnce(json({}, { headers: { Date: new Date(Date.now() + 3_600_000).toUTCString() } }));
    await read();
    expect(now() - Date.now()).toBeGreaterThan(3_500_000);
    request.mockResolvedValueOnce(json({}, { headers: { Date: new Date().toUTCString() } }));
    await read();
    expect(Math.abs(now() - Date.now())).toBeLessThan(100);
  });
});

describe("everyItem", () => {
  it("reads page after page", async () => {
    const pages: Record<string, { items: number[]; next_page_token: string | null }> = {
      first: { items: [1, 2], next_page_token: "b" },
      b: { items: [3], next_page_token: "c" },
      c: { items: [], next_page_token: null },
    };
    const asked: (string | undefined)[] = [];
    const items = await everyItem((token) => {
      asked.push(token);
      return Promise.resolve(pages[token ?? "first"] ?? { items: [] });
    });
    expect(items).toEqual([1, 2, 3]);
    expect(asked).toEqual([undefined, "b", "c"]);
  });
});

describe("readinessQuery", () => {
  const run = () => {
    const { queryFn } = readinessQuery();
    return (queryFn as (context: { signal: AbortSignal }) => Promise<unknown>)({ signal });
  };

  it("finds nothing on a server that is ready", async () => {
    request.mockResolvedValueOnce(json({ status: "ready" }));
    await expect(run()).resolves.toEqual([]);
  });

  it("lists what is missing", async () => {
    const errors = [{ pointer: "/engine", detail: "No engine is connected." }];
    request.mockResolvedValueOnce(json({ errors }, { status: 503 }));
    await expect(run()).resolves.toEqual(errors);
  });

  it("has a sentence where the server gives none", async () => {
    request.mockResolvedValueOnce(json({}, { status: 503 }));
    await expect(run()).resolves.toEqual([{ pointer: "", detail: "The server is not ready." }]);
  });
});

describe("waits and queries", () => {
  it("a wait returns its receipt and when it was asked for", async () => {
    const receipt = { position: "0/1" };
    request
      .mockResolvedValueOnce(json({ id: "w1", waited_ms: 12, receipt }))
      .mockResolvedValueOnce(json({ created_at: "2026-05-04T10:00:00Z" }));
    await expect(waitFor("copy", {} as never, signal)).resolves.toEqual({
      id: "w1",
      waitedMs: 12,
      askedAt: "2026-05-04T10:00:00Z",
      receipt,
    });
    expect(sent(1).url).toMatch(/\/subscriptions\/copy\/freshness-waits\/w1$/);
  });

  it("a wait that the server has forgotten has no moment", async () => {
    request.mockResolvedValueOnce(json({ id: "w1", waited_ms: 12, receipt: {} })).mockResolvedValueOnce(json({}, { status: 404 }));
    await expect(waitFor("copy", {} as never, signal)).resolves.toMatchObject({ askedAt: null });
  });

  it("a wait without a receipt is an error", async () => {
    request.mockResolvedValueOnce(json({ id: "w1", waited_ms: null, receipt: null }));
    await expect(waitFor("copy", {} as never, signal)).rejects.toThrow("without a receipt");
  });

  it("a query keeps every digit", async () => {
    request.mockResolvedValueOnce(new Response('{"rows": [[9223372036854775807]]}', { headers: { "Content-Type": "application/json" } }));
    await expect(runQuery("copy", {} as never, signal)).resolves.toEqual({ rows: [[9223372036854775807n]] });
  });
});
