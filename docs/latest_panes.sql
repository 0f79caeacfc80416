-- Of each window, and of each key in it, the one table that holds: that of the greatest pane_order.
-- Whole tables are chosen, never single rows, so that numbers of two panes are not mixed. Rows that
-- were sent twice are seen once. Where a window or a key is NULL, the NULLs are one group.
CREATE OR REPLACE VIEW `PROJECT.DATASET.latest` AS
SELECT *
FROM `PROJECT.DATASET.TABLE`
WHERE TRUE
QUALIFY
  pane_order = MAX(pane_order) OVER (PARTITION BY collection, window_start, window_end, key)
  AND 1 = ROW_NUMBER() OVER (
    PARTITION BY collection, window_start, window_end, key, pane_order, value ORDER BY raw)
