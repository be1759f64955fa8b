-- A table is built beside the replicated one and takes its name: what stands under the name counts.
-- replicate orders
-- setup
CREATE TABLE orders (id int PRIMARY KEY, v text);
INSERT INTO orders VALUES (1, 'old');
-- workload
CREATE TABLE orders_new (id bigint PRIMARY KEY, v text, n int DEFAULT 7);
INSERT INTO orders_new SELECT id, 'new' FROM orders;
BEGIN;
ALTER TABLE orders RENAME TO orders_old;
ALTER TABLE orders_new RENAME TO orders;
COMMIT;
-- wait
INSERT INTO orders VALUES (2, 'two');
INSERT INTO orders_old VALUES (3, 'nobody''s business');
-- expected orders: live
--   id | v   | n
--   1  | new | 7
--   2  | two | 7
-- history orders:
--   reloading: table_structure_changed
