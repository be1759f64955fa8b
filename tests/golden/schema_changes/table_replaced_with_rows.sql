-- A table takes the replicated one's name, and both get rows with it.
-- replicate orders
-- setup
CREATE TABLE orders (id int PRIMARY KEY, v text);
INSERT INTO orders VALUES (1, 'old');
-- workload
CREATE TABLE orders_new (id int PRIMARY KEY, v text);
BEGIN;
ALTER TABLE orders RENAME TO orders_old;
ALTER TABLE orders_new RENAME TO orders;
INSERT INTO orders VALUES (2, 'new');
INSERT INTO orders_old VALUES (3, 'nobody''s business');
COMMIT;
-- expected orders: live
--   id | v
--   2  | new
-- history orders:
--   reloading: table_structure_changed
