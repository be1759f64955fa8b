-- replicate items
-- setup
CREATE TABLE items (id int PRIMARY KEY, label text, n int NOT NULL DEFAULT 0);
INSERT INTO items SELECT g, 'copied ' || g, g FROM generate_series(1, 500) g;
-- workload
INSERT INTO items VALUES (1001, 'new', 1), (1002, 'newer', 2);

UPDATE items SET n = n + 1 WHERE id % 2 = 0;

DELETE FROM items WHERE id BETWEEN 100 AND 120;
-- wait
BEGIN;
INSERT INTO items VALUES (2001, 'short lived', 1);
UPDATE items SET label = 'changed' WHERE id = 2001;
DELETE FROM items WHERE id = 2001;
INSERT INTO items VALUES (2001, 'back again', 3);
COMMIT;

BEGIN;
DELETE FROM items WHERE id = 1;
INSERT INTO items VALUES (1, 'replaced', -1);
UPDATE items SET n = -2 WHERE id = 1;
COMMIT;

INSERT INTO items VALUES (5, 'conflict', 0) ON CONFLICT (id) DO UPDATE SET label = excluded.label || '!', n = items.n * 2;

UPDATE items SET label = label;

DELETE FROM items WHERE id > 400;
